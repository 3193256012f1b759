"""The words of a timeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from console.web.index.types import Kind, Times

Doing = Kind | Literal["rest"]
Painted = tuple[Doing, float, float]
"""(what the time went into, its first second, its last one)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What is looked at, in unix seconds."""

    start: float
    end: float

    @property
    def length(self) -> float:
        return self.end - self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A trajectory on the timeline. step: of the newest weights that wrote in it."""

    name: str
    suite: str
    step: int
    reward: float | None
    times: Times


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Over equal parts of a window: requests at the samplers and calls at the tools, means of how
    many were there at once, and tokens a second."""

    requests: tuple[float, ...]
    calls: tuple[float, ...]
    tokens: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """What the run did beside trajectories, in unix seconds. name: of a phase or a suite."""

    kind: Literal["learner", "evaluation"]
    name: str
    start: float
    end: float
