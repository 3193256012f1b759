"""The words of the index: a trajectory as the table lists it, and what a source gave at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["training", "evaluation", "file"]
"""Of a journal's group; of a suite; of a file of trajectories that lies in the run folder."""
NO_STEP = -1
"""Of a trajectory that no weights of the run wrote, such as a demonstration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a record lies. source: a name from `sources.sources_of`; at, part: a group's number and
    the member in it, or a file's byte and 0."""

    source: str
    at: int
    part: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """What the search looks through: the question, what the policy wrote, and what it read."""

    question: str = ""
    wrote: str = ""
    read: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A trajectory as the table lists it. name: its own in this run, the same after the index was
    made anew. group: those that are shown side by side. suite: "training", a suite, or a file.

    step: of the newest weights that wrote in it. reward: None where it is no number. failed: calls
    whose tool failed. answer: the last words of the policy. texts: None where only figures of it
    were recorded.
    """

    name: str
    group: str
    suite: str
    kind: Kind
    place: Place
    step: int = NO_STEP
    reward: float | None = None
    stop: str = ""
    status: str = ""
    masked: bool = False
    turns: int = 0
    calls: int = 0
    failed: int = 0
    tokens: int = 0
    seconds: float = 0.0
    task: str = ""
    question: str = ""
    answer: str = ""
    tools: tuple[str, ...] = ()
    texts: Texts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What a source gave at once. place: where it goes on. more: there may be more at once.

    broken: records that could not be read. fault: why the source cannot be read further now.
    anew: the source is another one than `place` was of, so what was read of it does not hold.
    """

    place: int
    entries: tuple[Entry, ...] = field(default=())
    more: bool = False
    broken: int = 0
    fault: str = ""
    anew: bool = False
