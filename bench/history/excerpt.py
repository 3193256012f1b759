"""The events around a finding, one line each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from bench.history.events import (
    Acknowledged,
    Admitted,
    AnyEvent,
    Dispatched,
    Effect,
    Evaluated,
    Fault,
    FaultsOver,
    LifeBegan,
    LifeEnded,
    Loaded,
    Offered,
    Position,
    Published,
    Publishing,
    Restored,
    Sampled,
    Seen,
    SessionClosed,
    SessionOpened,
    Trained,
)
from bench.history.names import attempt_of_session, group_of, trajectory_of

BEFORE = 8
AFTER = 3
"""Events of the same things that are shown before and after the one that shows the finding."""
HARNESS = (Fault, FaultsOver, LifeBegan, LifeEnded, Restored)
"""Kinds that may explain any finding."""
ADMISSIONS = "admissions"
"""The name of all `Admitted` events together."""
LONGEST = 160
"""Characters of a line."""
_IDS = 6
"""Token ids of an array that are shown."""
_Wanted: TypeAlias = tuple[frozenset[str], frozenset[str]]
"""Names, for events of groups and for all others."""


def excerpt(history: Sequence[AnyEvent], index: int, about: Sequence[str]) -> tuple[str, ...]:
    """Lines of the events that concern one of `about`, around event `index`, which has a mark."""
    names = frozenset(name for name in about if name)
    # The group is shown by its own events alone if a member or an attempt is named too.
    wanted = names, names - {group_of(name) for name in names}
    before = _some(history, range(index - 1, -1, -1), wanted, BEFORE)
    after = _some(history, range(index + 1, len(history)), wanted, AFTER)
    lines = [f"  {line(history[number])}" for number in reversed(before)]
    lines.append(f"> {line(history[index])}")
    lines += [f"  {line(history[number])}" for number in after]
    return tuple(lines)


def _some(history: Sequence[AnyEvent], places: range, wanted: _Wanted, most: int) -> list[int]:
    """The first of `places` with events that are wanted, at most `most`, and half as many of the
    harness's own between them."""
    found: list[int] = []
    own, others = 0, 0
    for place in places:
        if isinstance(history[place], HARNESS):
            others += 1
            if others <= most // 2:
                found.append(place)
        elif _concerns(history[place], wanted):
            own += 1
            found.append(place)
            if own == most:
                break
    return found


def line(event: Seen) -> str:
    """One event: time, kind, and its fields, cut to `LONGEST` characters."""
    fields = (
        f"{name}={_shown(value)}"
        for name in event.__struct_fields__
        if name != "at" and (value := getattr(event, name)) not in (None, "", ())
    )
    text = " ".join((f"{event.at:.3f}", type(event).__name__, *fields))
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def _concerns(event: AnyEvent, wanted: _Wanted) -> bool:
    names = wanted[0] if isinstance(event, Offered | Position) else wanted[1]
    return not names.isdisjoint(_names(event))


def _names(event: AnyEvent) -> set[str]:
    """Names of what an event is about."""
    match event:
        case Sampled():
            return {*_of_attempt(event.attempt), event.server, str(event.version)}
        case Admitted():
            return {ADMISSIONS}
        case Acknowledged():
            return {f"sequence {event.mark}"}
        case Publishing() | Published():
            return {str(event.version)}
        case Loaded():
            return {event.server, str(event.version)}
        case SessionOpened() | SessionClosed():
            return {event.session, *_of_attempt(attempt_of_session(event.session))}
        case Effect():
            return {event.session, *_of_attempt(event.call_id.rsplit("/", 2)[0])}
        case Dispatched():
            return _of_attempt(event.attempt)
        case Offered():
            return {event.group, f"sequence {event.sequence}"}
        case Trained():
            return {f"sequence {number}" for number in event.sequences}
        case Position():
            return {event.group, f"sequence {event.sequence}"}
        case Evaluated():
            return {f"{event.suite}@{event.version}"}
    return set()


def _of_attempt(attempt: str) -> set[str]:
    return {attempt, trajectory_of(attempt), group_of(attempt)} if attempt else set()


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return value
    if hasattr(value, "typecode"):
        shown = " ".join(str(number) for number in value[:_IDS])
        return f"[{shown}{' ...' if len(value) > _IDS else ''}]({len(value)})"
    if isinstance(value, tuple):
        return f"({', '.join(_shown(one) for one in value)})"
    if hasattr(value, "__struct_fields__"):
        return str(getattr(value, "attempt", "") or getattr(value, "author", ""))
    return str(value)
