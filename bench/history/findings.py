"""The words of the validator: an invariant, what breaks it, and what a judge is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from bench.history.events import Planned, Seen


class HistoryError(ValueError):
    """The events are not a history: the harness wrote them wrongly, whatever the engine did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Invariant:
    """One promise. name: stable, for mutants and reports; source: where the promise stands."""

    name: str
    promise: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """An invariant that does not hold. index: of the event that shows it. about: names of the
    group, attempt, session, server or sequence number concerned."""

    invariant: Invariant
    index: int
    message: str
    about: tuple[str, ...]


class Findings:
    """What all judges found: of each broken invariant the earliest event, and those with
    evidence."""

    def __init__(self) -> None:
        self.broken: dict[str, Broken] = {}
        self.evidence: set[str] = set()
        """Names of the invariants that at least one event could have broken."""

    def judged(self, invariant: Invariant) -> None:
        """The history has evidence for the invariant."""
        self.evidence.add(invariant.name)

    def breaks(self, invariant: Invariant, index: int, message: str, *about: str) -> None:
        """Keeps the finding if no earlier event shows that the invariant is broken."""
        self.evidence.add(invariant.name)
        known = self.broken.get(invariant.name)
        if known is None or index < known.index:
            self.broken[invariant.name] = Broken(
                invariant=invariant, index=index, message=message, about=about
            )


Handler: TypeAlias = Callable[[int, Any], None]
"""Takes an event's index in the history, and the event."""


class Judge:
    """Sees the events of some kinds in order, then the end. Uses time linear in what it sees."""

    invariants: ClassVar[tuple[Invariant, ...]]

    def __init__(self, planned: Planned, findings: Findings) -> None:
        self.planned = planned
        self.findings = findings

    def handlers(self) -> Mapping[type[Seen], Handler]:
        """The kinds of events that the judge needs."""
        raise NotImplementedError

    def finish(self, last: int) -> None:
        """All events were seen. last: index of the last one."""
