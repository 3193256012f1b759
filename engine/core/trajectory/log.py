"""The log of one attempt while it grows: each event is folded and handed to the keeper. Also logs
that begin by reference to another log."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from engine.core.images.media import Media
from engine.core.trajectory.events import AnyEvent, Forked
from engine.core.trajectory.state import EMPTY, LogError, State, apply, fold

Keeper = Callable[[str, Sequence[AnyEvent], Sequence[Media]], None]
"""(attempt, new events, blobs that they name): takes them at once and makes them durable soon."""


def keep_nothing(_attempt: str, _events: Sequence[AnyEvent], _blobs: Sequence[Media]) -> None:
    """A keeper for trajectories that need not survive a crash."""


class AttemptLog:
    """The log of an attempt. `state` is the fold of all events so far, `length` their number.

    attempt: "trajectory/name", the key of the log and the root of its session's and calls' ids.
    """

    def __init__(
        self,
        attempt: str,
        keeper: Keeper = keep_nothing,
        events: Sequence[AnyEvent] = (),
        *,
        start: State = EMPTY,
    ) -> None:
        """events: those that `keeper` already has, after `start`. Raises LogError if they belong to
        no attempt."""
        self.attempt = attempt
        self.state = fold(events, start)
        self.length = len(events)
        self.keeper = keeper

    def append(self, event: AnyEvent, blobs: Sequence[Media] = ()) -> None:
        """Raises LogError for an event that cannot follow."""
        self.append_all((event,), blobs)

    def append_all(self, events: Sequence[AnyEvent], blobs: Sequence[Media] = ()) -> None:
        """Appends events that belong together: a crash leaves all of them or none. Raises LogError,
        and appends nothing, if one of them cannot follow."""
        state = self.state
        for event in events:
            state = apply(state, event)
        self.state = state
        self.length += len(events)
        self.keeper(self.attempt, events, blobs)


def whole_log(events: Sequence[AnyEvent], logs: Mapping[str, Sequence[AnyEvent]]) -> list[AnyEvent]:
    """All events of a log: first its parent's events up to the fork, then its own. Raises LogError
    if the parent's are missing."""
    if not events or not isinstance(events[0], Forked):
        return list(events)
    first = events[0]
    parent = logs.get(first.parent)
    if parent is None or len(parent) < first.events:
        raise LogError(f"the log of {first.parent} does not reach the fork")
    # Each step up has fewer candidates, so even a circle of parents ends.
    others = {name: one for name, one in logs.items() if name != first.parent}
    return [*whole_log(parent[: first.events], others), *events]


def before(events: Sequence[AnyEvent], logs: Mapping[str, Sequence[AnyEvent]]) -> State:
    """The state in which a log begins: its parent's at the fork, or the empty one. Raises LogError
    like `whole_log`."""
    whole = whole_log(events, logs)
    return fold(whole[: len(whole) - len(events)])
