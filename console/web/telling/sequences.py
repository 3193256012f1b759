"""The sequences of a trajectory as a tree: what each one shares, why it began, what of it trains.

The reason is the event `sequence_forked` of the turn at which a sequence begins, as the engine
wrote it. Pure.

Invariants
- Every token of the trajectory is drawn once: a sequence's copy of its parent is not its own.
- A parent stands above its children: records name earlier sequences only, and a record that names
  a later one has a root there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from toolwright.types import Author, Segment, Trajectory, segments_after
from toolwright.types import Sequence as TokenSequence

FORKED = "sequence_forked"
WHY = {
    "root": "a new context that shares no token with an earlier one",
    "prefix": "a fork inside earlier text: the request changed what was sent before",
    "branch": "a fork: the same answer got another next message, edited or parallel",
    "sample": "another sample of the same request",
    "choice": "another choice of the same call",
}

Request = tuple[int | None, int, bytes]
"""(parent, shared tokens, ids before the first action of a sequence)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
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
    untrained: str
    """Why no token of it is trained; "" for a sequence that trains."""
    own: tuple[Segment, ...]
    """Segments after the copy."""
    spans: tuple[Stretch, ...]

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
    shares = [
        (one.fork_offset or 0) if parent is not None else 0
        for one, parent in zip(trajectory.sequences, parents, strict=True)
    ]
    owns = [
        segments_after(one.segments, shared)
        for one, shared in zip(trajectory.sequences, shares, strict=True)
    ]
    requests = [*map(_request, parents, shares, owns)]
    samples = Counter(requests)
    causes = _causes(trajectory)
    agents, seen = set[str](), set[Request]()
    found = []
    for place, sequence in enumerate(trajectory.sequences):
        shared, own = shares[place], owns[place]
        trains = not trajectory.masked and sequence.weight > 0
        turn = next((one.turn for one in own if one.author is Author.MODEL), None)
        begins = own[0].turn if turn is None and own else turn
        spans = _spans(own, shared, trains=trains)
        cause = causes.get(begins)
        if cause == "root" and requests[place] in seen:
            cause = "sample"
        sampled = samples[requests[place]] > 1 or cause in ("sample", "choice")
        why = _why(sequence.parent, cause, new=sequence.agent not in agents)
        agents.add(sequence.agent)
        seen.add(requests[place])
        found.append(
            Branch(
                parent=parents[place],
                shared=shared,
                turn=turn,
                why="" if not place and not sequence.parent else why,
                row=rows[place],
                untrained=_untrained(trajectory, sequence, spans, sampled=sampled),
                own=own,
                spans=spans,
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


def _request(parent: int | None, shared: int, own: Sequence[Segment]) -> Request:
    """Equal for equal requests."""
    read = takewhile(lambda one: one.author is not Author.MODEL, own)
    return parent, shared, b"".join(one.token_ids.tobytes() for one in read)


def _untrained(
    trajectory: Trajectory, sequence: TokenSequence, spans: Iterable[Stretch], *, sampled: bool
) -> str:
    """sampled: the request of its first action has another sample."""
    written = [one.trained for one in spans if one.author == "model"]
    if any(written):
        return ""
    if not written:
        return "the policy wrote nothing"
    if trajectory.masked:
        return "masked"
    if not sequence.weight:
        return "weight 0"
    return "superseded" if sampled else "not trained"


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


def _spans(own: Sequence[Segment], at: int, *, trains: bool) -> tuple[Stretch, ...]:
    """at: position of the first token."""
    found: list[Stretch] = []
    for segment in own:
        trained = trains and segment.trainable
        end = at + len(segment.token_ids)
        same = (segment.author.name.lower(), segment.turn, trained)
        if found and (found[-1].author, found[-1].turn, found[-1].trained) == same:
            at = found.pop().start
        found.append(Stretch(author=same[0], turn=segment.turn, start=at, end=end, trained=trained))
        at = end
    return tuple(found)
