"""The log of one attempt while it grows: each event is folded, and handed to whoever keeps it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.images.media import Media
from engine.rollout.events import AnyEvent
from engine.rollout.state import EMPTY, State, apply, fold

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
        self._keeper = keeper

    def append(self, event: AnyEvent, blobs: Sequence[Media] = ()) -> None:
        """LogError for an event that cannot follow."""
        self.state = apply(self.state, event)
        self.length += 1
        self._keeper(self.attempt, (event,), blobs)
