"""The sequences of a trajectory as a tree: what each one shares, why it began, what of it trains.

The reason is the event `sequence_forked` of the turn at which a sequence begins, as the engine
wrote it. Pure.

Invariants
- Every token of the trajectory is drawn once: a sequence's copy of its parent is not its own.
- A parent stands above its children: records name earlier sequences only, and a record that names
  a later one has a root there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toolwright.types import Author, Segment, Trajectory

FORKED = "sequence_forked"
WHY = {
    "root": "a new context that shares no token with an earlier one",
    "prefix": "a fork inside earlier text: the request changed what was sent before",
    "branch": "a fork: the same answer got another next message, edited or parallel",
    "sample": "another sample of the same request",
    "choice": "another choice of the same call",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Tokens of one author in one turn, half-open positions in the sequence."""

    author: str
    turn: int
    start: int
    end: int
    trained: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """A sequence in its tree."""

    parent: int | None
    """Place of the sequence that it copies, in this trajectory."""
    shared: int
    """Number of tokens that it copies."""
    turn: int | None
    """First turn that the policy took in it."""
    why: str
    """Why it began; "" for a trajectory's first one."""
    row: int
    """Row of the drawing, from 0."""
    own: tuple[Segment, ...]
    """Segments after the copy."""
    spans: tuple[Span, ...]

    @property
    def written(self) -> int:
        """Tokens that the policy wrote in it."""
        return sum(one.end - one.start for one in self.spans if one.author == "model")

    @property
    def trained(self) -> int:
        """Tokens in it that the learner trains."""
        return sum(one.end - one.start for one in self.spans if one.trained)


def branches(trajectory: Trajectory) -> list[Branch]:
    """The sequences in their order."""
    places: dict[str, int] = {}
    parents: list[int | None] = []
    for place, sequence in enumerate(trajectory.sequences):
        parents.append(None if sequence.parent is None else places.get(sequence.parent))
        places.setdefault(sequence.id, place)
    rows = _rows(parents)
    causes = _causes(trajectory)
    agents: set[str] = set()
    found = []
    for place, sequence in enumerate(trajectory.sequences):
        shared = (sequence.fork_offset or 0) if parents[place] is not None else 0
        own = _after(sequence.segments, shared)
        trains = not trajectory.masked and sequence.weight > 0
        turn = next((one.turn for one in own if one.author is Author.MODEL), None)
        begins = own[0].turn if turn is None and own else turn
        why = _why(sequence.parent, causes.get(begins), new=sequence.agent not in agents)
        agents.add(sequence.agent)
        found.append(
            Branch(
                parent=parents[place],
                shared=shared,
                turn=turn,
                why="" if not place and not sequence.parent else why,
                row=rows[place],
                own=own,
                spans=_spans(own, shared, trains=trains),
            )
        )
    return found


def _why(parent: str | None, cause: str | None, *, new: bool) -> str:
    """new: the agent wrote in no earlier sequence."""
    if cause is None:
        return f"a branch of {parent}" if parent else WHY["root"]
    if cause == "root" and new:
        return "the first call of another agent"
    return WHY.get(cause, f"the context was rewritten: {cause}")


def _causes(trajectory: Trajectory) -> Mapping[int | None, str]:
    """By the turn at which a sequence begins."""
    found: dict[int | None, Any] = {
        one.turn: one.data.get("cause") for one in trajectory.events if one.kind == FORKED
    }
    return {turn: cause for turn, cause in found.items() if isinstance(cause, str)}


def _rows(parents: Sequence[int | None]) -> list[int]:
    """A row for each sequence: each one directly above its own descendants."""
    children: dict[int | None, list[int]] = {}
    for place, parent in enumerate(parents):
        children.setdefault(parent, []).append(place)
    rows, left = [0] * len(parents), children.get(None, [])[::-1]
    for row in range(len(parents)):
        place = left.pop()
        rows[place] = row
        left += children.get(place, [])[::-1]
    return rows


def _after(segments: Sequence[Segment], shared: int) -> tuple[Segment, ...]:
    """Segments that begin after the first `shared` tokens, at which a segment ends."""
    at = 0
    for number, segment in enumerate(segments):
        if at >= shared:
            return tuple(segments[number:])
        at += len(segment.token_ids)
    return ()


def _spans(own: Sequence[Segment], at: int, *, trains: bool) -> tuple[Span, ...]:
    """at: position of the first token."""
    found: list[Span] = []
    for segment in own:
        trained = trains and segment.trainable
        end = at + len(segment.token_ids)
        same = (segment.author.name.lower(), segment.turn, trained)
        if found and (found[-1].author, found[-1].turn, found[-1].trained) == same:
            at = found.pop().start
        found.append(Span(author=same[0], turn=segment.turn, start=at, end=end, trained=trained))
        at = end
    return tuple(found)
