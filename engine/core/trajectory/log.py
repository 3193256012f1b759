"""The log of one attempt while it grows: each event is folded, and handed to whoever keeps it; and
logs that begin by reference to another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from engine.core.images.media import Media
from engine.core.trajectory.events import AnyEvent, Forked
from engine.core.trajectory.state import EMPTY, LogError, State, apply, fold

Keeper = Callable[[str, Sequence[AnyEvent], Sequence[Media]], None]
"""(attempt, new events, blobs that they name): takes them at once and makes them durable soon."""


def keep_nothing(_attempt: str, _events: Sequence[AnyEvent], _blobs: Sequence[Media]) -> None:
    """A keeper for trajectories that no crash needs to survive."""


class AttemptLog:
    """`state` is what all events so far fold to; `length` is how many they are.

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
        """`events`: those that `keeper` has already, after `start`. LogError where they are no
        attempt's."""
        self.attempt = attempt
        self.state = fold(events, start)
        self.length = len(events)
        self.keeper = keeper

    def append(self, event: AnyEvent, blobs: Sequence[Media] = ()) -> None:
        """LogError for an event that cannot follow."""
        self.state = apply(self.state, event)
        self.length += 1
        self.keeper(self.attempt, (event,), blobs)


def whole_log(events: Sequence[AnyEvent], logs: Mapping[str, Sequence[AnyEvent]]) -> list[AnyEvent]:
    """All events of a log: first those of its parent that it refers to, then its own. LogError
    where the parent's are not there."""
    if not events or not isinstance(events[0], Forked):
        return list(events)
    first = events[0]
    parent = logs.get(first.parent)
    if parent is None or len(parent) < first.events:
        raise LogError(f"the log of {first.parent} is not there as far as it was forked")
    # Each step up looks among fewer: parents in a circle, which nobody writes, end it too.
    others = {name: one for name, one in logs.items() if name != first.parent}
    return [*whole_log(parent[: first.events], others), *events]


def before(events: Sequence[AnyEvent], logs: Mapping[str, Sequence[AnyEvent]]) -> State:
    """The state in which a log begins: its parent's at the fork, or the empty one. LogError as of
    `whole_log`."""
    whole = whole_log(events, logs)
    return fold(whole[: len(whole) - len(events)])
