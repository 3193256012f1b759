"""The words of the index: a trajectory as the table lists it, and what a source gave at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

SuiteKind = Literal["training", "evaluation", "file"]
"""A journal's group; a suite; a file of trajectories in the run folder."""
Kind = Literal["open", "wait", "generate", "queue", "tool"]
"""What time goes into: opening sessions; an action until its first token; the rest of it; a call
that waits for a place at its tool; a call that runs."""
KINDS: tuple[Kind, ...] = get_args(Kind)
"""By their numbers in the index's file."""
NO_STEP = -1
"""Step of a trajectory that no weights of the run wrote, such as a demonstration."""


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
class Span:
    """Seconds since the trajectory began. tokens: what the policy wrote in it."""

    kind: Kind
    start: float
    end: float
    tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """began: unix seconds. length: seconds, of all spans at least."""

    began: float
    length: float
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Something beside the trajectories. at: unix seconds of its end, 0 if unknown.

    step: of the weights that were published or evaluated, or that a learner's step made. name: of
    the suite. seconds: durations, by name.
    """

    kind: Literal["published", "evaluated", "learnt"]
    step: int
    at: float
    name: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A trajectory as the table lists it. name: its own in this run, the same after the index was
    made anew. group: those that are shown side by side. suite: "training", a suite, or a file.

    step: of the newest weights that wrote in it. reward: None where it is no number. failed: calls
    whose tool failed. answer: the last words of the policy. texts: None where only figures of it
    were recorded. times: None where no stamps were. labels: (key, word) that it is grouped by, see
    `labels`.
    """

    name: str
    group: str
    suite: str
    kind: SuiteKind
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
    times: Times | None = None
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What a source gave at once. place: where it goes on. more: there may be more at once.

    broken: records that could not be read. fault: why the source cannot be read further now.
    anew: the source is another one than `place` was of, so what was read of it does not hold.
    """

    place: int
    entries: tuple[Entry, ...] = field(default=())
    marks: tuple[Mark, ...] = field(default=())
    more: bool = False
    broken: int = 0
    fault: str = ""
    anew: bool = False
