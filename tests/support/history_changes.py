"""Small changes of a history: functions that make and combine them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from bench.history.events import (
    AnyEvent,
    Dispatched,
    Effect,
    History,
    LearnerRefused,
    Member,
    Offered,
    Publishing,
    Sampled,
    SessionClosed,
)
from tests.support.histories import replaced as changed
from toolwright.types import WeightVersion, ids

Kind = TypeVar("Kind")
Change = Callable[[History], History]

G1 = "g0000001-0/b0r0a0"
GIVEN_UP = "g0000001-1/b0r0a0"
G4 = "g0000004-0/b1r0a0"
UNKNOWN = WeightVersion(lineage="z", step=1)


CALL_4 = {"call_id": f"{G4}/0/0"}


def places(history: History, kind: type[Kind], **fields: object) -> list[int]:
    """Indexes of the events of a kind with these fields."""
    return [
        index
        for index, event in enumerate(history)
        if isinstance(event, kind)
        and all(getattr(event, name) == value for name, value in fields.items())
    ]


def edit(
    kind: type[Any], number: int = 0, *, where: dict[str, Any] | None = None, **new: Any
) -> Change:
    """Other values for fields of one event; a function gets the old value."""

    def apply(history: History) -> History:
        index = places(history, kind, **(where or {}))[number]
        values = {
            name: value(getattr(history[index], name)) if callable(value) else value
            for name, value in new.items()
        }
        return [*history[:index], changed(history[index], **values), *history[index + 1 :]]

    return apply


def delete(kind: type[Any], number: int = 0, **where: Any) -> Change:
    def apply(history: History) -> History:
        index = places(history, kind, **where)[number]
        return [*history[:index], *history[index + 1 :]]

    return apply


def insert(
    after: tuple[type[Any], int, dict[str, Any]], *events: AnyEvent, before: bool = False
) -> Change:
    """Events after the one of a kind with a number and fields, or before it."""

    def apply(history: History) -> History:
        kind, number, where = after
        index = places(history, kind, **where)[number] + (not before)
        return timed([*history[:index], *events, *history[index:]])

    return apply


def again(kind: type[Any], number: int, after: tuple[type[Any], int], **new: Any) -> Change:
    """A copy of an event after another one."""

    def apply(history: History) -> History:
        copy = changed(history[places(history, kind)[number]], **new)
        return insert((after[0], after[1], {}), copy)(history)

    return apply


def move(kind: type[Any], number: int, after: int) -> Change:
    """An event to after another one of its kind."""

    def apply(history: History) -> History:
        found = places(history, kind)
        moved, to = found[number], found[after]
        rest = [*history[:moved], *history[moved + 1 : to + 1], history[moved]]
        return timed([*rest, *history[to + 1 :]])

    return apply


def both(*changes: Change) -> Change:
    def apply(history: History) -> History:
        for change in changes:
            history = change(history)
        return history

    return apply


def timed(history: History) -> History:
    """No event before its predecessor."""
    found: History = []
    now = 0.0
    for event in history:
        now = max(now, event.at)
        found.append(changed(event, at=now))
    return found


def member(number: int, **new: Any) -> Callable[[tuple[Member, ...]], tuple[Member, ...]]:
    """Another value for fields of one member; a function gets the old value."""

    def apply(members: tuple[Member, ...]) -> tuple[Member, ...]:
        found = list(members)
        old = found[number]
        values = {k: v(getattr(old, k)) if callable(v) else v for k, v in new.items()}
        found[number] = changed(old, **values)
        return tuple(found)

    return apply


def segment(number: int, **new: Any) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    def apply(segments: tuple[Any, ...]) -> tuple[Any, ...]:
        found = list(segments)
        found[number] = changed(found[number], **new)
        return tuple(found)

    return apply


def cut_at_observation(segments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Up to the first two ids of the first observation."""
    place = next(n for n, one in enumerate(segments) if one.author == "TOOL")
    return (*segments[:place], changed(segments[place], token_ids=segments[place].token_ids[:2]))


def other_last_id(segments: tuple[Any, ...]) -> tuple[Any, ...]:
    return segment(-1, token_ids=ids([*segments[-1].token_ids[:-1], 99_999]))(segments)


def renamed(name: str) -> Callable[[tuple[Member, ...]], tuple[Member, ...]]:
    return lambda found: tuple(
        changed(one, trajectory=f"{name}-{index}") for index, one in enumerate(found)
    )


def request(history: History, attempt: str, *more: int, number: int = -1) -> Sampled:
    """One more request of an attempt: an earlier one's prompt and more ids."""
    earlier = history[places(history, Sampled, attempt=attempt)[number]]
    assert isinstance(earlier, Sampled)
    return changed(earlier, prompt=ids([*earlier.prompt, *more]), token_ids=ids())


def ask_more(attempt: str, *more: int, number: int = -1) -> Change:
    return lambda history: insert(
        (Sampled, -1, {"attempt": attempt}), request(history, attempt, *more, number=number)
    )(history)


def swapped_answers(history: History) -> History:
    one, other = places(history, Effect, call_id=f"{G1}/0/0") + places(
        history, Effect, call_id=f"{G1}/0/1"
    )
    first, second = history[one], history[other]
    assert isinstance(first, Effect)
    assert isinstance(second, Effect)
    found = list(history)
    found[one] = changed(first, answer=second.answer)
    found[other] = changed(second, answer=first.answer)
    return found


def without_calls_of_publish(history: History) -> History:
    return [event for event in history if not isinstance(event, Publishing)]


def under(attempt: str, version: WeightVersion, offer: int, *, who: int = 0) -> Change:
    """The last request of a member's attempt, and its segment, are of another version."""
    return both(
        edit(Sampled, -1, where={"attempt": attempt}, version=version),
        edit(Offered, offer, members=member(who, segments=segment(-1, version=version))),
    )


def session(attempt: str, life: int) -> str:
    return f"owner/{attempt}@b{life}"


def effect(attempt: str, life: int, call: str) -> Effect:
    return Effect(at=0, session=session(attempt, life), call_id=f"{attempt}/{call}", action="x")


def dispatched(attempt: str, life: int) -> Dispatched:
    return Dispatched(at=0, life=life, attempt=attempt, call_id=f"{attempt}/5/0")


def later(kind: type[Any], number: int, seconds: float) -> Change:
    """An event and all after it, some seconds later."""

    def apply(history: History) -> History:
        index = places(history, kind)[number]
        moved = (changed(event, at=event.at + seconds) for event in history[index:])
        return [*history[:index], *moved]

    return apply


def closed(attempt: str) -> SessionClosed:
    """The engine closed the session of an attempt of life 1."""
    return SessionClosed(at=0, session=session(attempt, 1), by_engine=True)


def refused(method: str, reason: str, version: WeightVersion | None = None) -> LearnerRefused:
    return LearnerRefused(at=0, method=method, reason=reason, version=version)
