"""Judges a history: the first invariant that it breaks, and those that it cannot show.

Pure, and linear in the history's length. `bench/history/invariants/` has the invariants.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from bench.history.events import AnyEvent, Planned, Seen
from bench.history.excerpt import excerpt
from bench.history.findings import Findings, Handler, HistoryError, Invariant
from bench.history.invariants import INVARIANTS, JUDGES


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A broken invariant. at: seconds, of the event that shows it; around: events of the same
    group, attempt or session, one line each; the event itself begins with '>'."""

    invariant: Invariant
    index: int
    at: float
    message: str
    around: tuple[str, ...]

    def __str__(self) -> str:
        head = f"{self.invariant.name} is broken at {self.at:.3f} s: {self.message}"
        promise = f"  promise: {self.invariant.promise} ({self.invariant.source})"
        return "\n".join((head, promise, *self.around))


def validate(history: Sequence[AnyEvent]) -> Violation | None:
    """The violation with the earliest event; None if every invariant holds. Raises HistoryError for
    events that no run can have: no plan at the start, a clock that falls, a malformed name."""
    return next(iter(violations(history)), None)


def violations(history: Sequence[AnyEvent]) -> tuple[Violation, ...]:
    """The first violation of each broken invariant, by the time of its event. Later ones are often
    consequences of the first. Raises HistoryError as `validate` does."""
    broken = sorted(_judged(history).broken.values(), key=lambda one: one.index)
    return tuple(
        Violation(
            invariant=one.invariant,
            index=one.index,
            at=history[one.index].at,
            message=one.message,
            around=excerpt(history, one.index, one.about),
        )
        for one in broken
    )


def unjudged(history: Sequence[AnyEvent]) -> tuple[str, ...]:
    """Names of the invariants that no event of the history could have broken. Raises HistoryError
    as `validate` does."""
    evidence = _judged(history).evidence
    return tuple(one.name for one in INVARIANTS if one.name not in evidence)


def _judged(history: Sequence[AnyEvent]) -> Findings:
    if not history or not isinstance(history[0], Planned):
        raise HistoryError("a history begins with Planned: write that event first")
    findings = Findings()
    judges = [judge(history[0], findings) for judge in JUDGES]
    handlers: dict[type[Seen], list[Handler]] = defaultdict(list)
    for judge in judges:
        for kind, handler in judge.handlers().items():
            handlers[kind].append(handler)
    before = history[0].at
    for index, event in enumerate(history):
        if not event.at >= before:
            raise HistoryError(
                f"event {index} ({type(event).__name__}) is at {event.at}, after one at {before}: "
                "sort the events by one clock"
            )
        before = event.at
        for handler in handlers.get(type(event), ()):
            handler(index, event)
    for judge in judges:
        judge.finish(len(history) - 1)
    return findings
