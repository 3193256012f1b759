"""What a search agent and its environment said, read from the record of a trajectory. Pure.

The author of a text is that of its segment and never read from tags: documents
are what the environment appended, whatever the policy writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

from toolwright.types import Author, Trajectory

from .blocks import Action, Tags, action_of, bodies


class Speaker(Enum):
    """Author of a piece."""

    POLICY = auto()
    DOCUMENTS = auto()
    """The environment: what a search came to."""
    CORRECTION = auto()
    """The environment: its own words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What one speaker said in a turn. text: of the policy alone."""

    speaker: Speaker
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialogue:
    """texts: of the policy's turns. pieces: in the order of the record. actions: one a turn, None
    for a turn without one. queries: of the searches that were made."""

    tags: Tags
    texts: tuple[str, ...]
    pieces: tuple[Piece, ...]
    actions: tuple[Action | None, ...]
    queries: tuple[str, ...]
    documents: tuple[str, ...]
    """What the searches came to, whole."""

    @property
    def searches(self) -> int:
        """Turns that ended in a search, the one included that came too late to be made."""
        asked = [one for one in self.actions if one is not None and one.kind == "search"]
        return sum(not one.empty for one in asked)

    @property
    def invalid_turns(self) -> int:
        """Turns without an action that can be carried out."""
        return sum(one is None or one.empty for one in self.actions)

    @property
    def answer(self) -> str | None:
        """The last answer in what the policy wrote; None without one."""
        answers = [body for text in self.texts for body in bodies(text, self.tags.answer)]
        return answers[-1] if answers else None

    @property
    def answer_tags(self) -> int:
        """Opening or closing tags of answers that the policy wrote, whichever are more."""
        word = self.tags.answer
        return max(
            sum(text.count(f"<{word}>") for text in self.texts),
            sum(text.count(f"</{word}>") for text in self.texts),
        )

    @property
    def memories(self) -> list[str]:
        """What the policy noted, a block each."""
        if not self.tags.memory:
            return []
        return [body for text in self.texts for body in bodies(text, self.tags.memory)]


def read(trajectory: Trajectory, tags: Tags, tool: str = "search") -> Dialogue:
    """The dialogue of a trajectory, as reward functions and group hooks see it. tool: the name of
    the search."""
    texts = tuple(map(str, trajectory.metadata.get("texts", ())))
    actions = tuple(action_of(text, tags) for text in texts)
    made = [call for call in trajectory.calls if call.tool == tool and call.outcome.valid]
    asked = [actions[call.turn] if call.turn < len(actions) else None for call in made]
    return Dialogue(
        tags=tags,
        texts=texts,
        pieces=tuple(_pieces(trajectory, texts)),
        actions=actions,
        queries=tuple(one.body for one in asked if one is not None and one.kind == "search"),
        documents=tuple(call.outcome.observation for call in made),
    )


def _pieces(trajectory: Trajectory, texts: tuple[str, ...]) -> Iterator[Piece]:
    """A piece for each run of segments of one author in one turn."""
    before = None
    for segment in trajectory.segments:
        here = (segment.author, segment.turn)
        if here == before or segment.author is Author.PROMPT:
            continue
        before = here
        if segment.author is Author.MODEL:
            text = texts[segment.turn] if segment.turn < len(texts) else ""
            yield Piece(speaker=Speaker.POLICY, text=text)
        elif segment.author is Author.TOOL:
            yield Piece(speaker=Speaker.DOCUMENTS)
        else:
            yield Piece(speaker=Speaker.CORRECTION)
