"""The engine's news for watchers: the newest events in a ring, and readers that follow it.

Invariants
- The ring holds `KEPT` events, whatever the readers do. Adding an event never waits.
- A reader that is too slow gets one event `gap`, which counts the events that it lost.
- Numbers grow over all lives of the run. The events of an earlier life are gone.

The feed is news, not a record: a kill may lose the last events. The journal is the record.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.rpc.errors import ServiceError

KEPT = 8_192
"""Events in the ring: some 4 MB."""
MOST_WATCHERS = 64
LIFE_BITS = 32
"""The numbers of a life begin above its number, shifted by this."""
GAP = "gap"
MOST_TEXT = 500
"""Characters of a text in an event."""
RETRY_S = 5.0

Happened = Callable[..., None]
"""(kind, **data): reports an event."""


def unheard(_kind: str, **_data: Any) -> None:
    """Reports an event to no reader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedEvent:
    """One event."""

    number: int
    kind: str
    data: Mapping[str, Any]


class EventFeed:
    """The events of one life of an engine."""

    def __init__(self, life: int) -> None:
        """life: number of the engine's start, from 1."""
        self._base = life << LIFE_BITS
        self._last = self._base
        self._ring: list[FeedEvent | None] = [None] * KEPT
        self._changed = asyncio.Event()
        self._closed = False
        self.watchers = 0

    def add(self, kind: str, **data: Any) -> None:
        """Adds an event. data: texts, numbers and flags. A number that is not finite becomes a
        text."""
        for name, value in data.items():
            if isinstance(value, str):
                data[name] = value[:MOST_TEXT]
            elif isinstance(value, float) and not math.isfinite(value):
                data[name] = str(value)
        self._last += 1
        data["time_s"] = round(time.time(), 3)
        self._ring[self._last % KEPT] = FeedEvent(number=self._last, kind=kind, data=data)
        self._wake()

    def close(self) -> None:
        """Ends all readers once they have the last event."""
        self._closed = True
        self._wake()

    async def follow(self, after: int) -> AsyncGenerator[FeedEvent]:
        """Events with a higher number, then each new one, until `close`. 0 = from the oldest.

        Raises ServiceError for a number that no event has, and for one reader too many.
        """
        if after > self._last:
            raise ServiceError(
                reasons.ERROR_REASON_UNKNOWN_SEQUENCE,
                f"event {after} never happened, the last one is {self._last}",
                subject=str(after),
                fix="follow from 0",
            )
        if self.watchers >= MOST_WATCHERS:
            raise ServiceError(
                reasons.ERROR_REASON_QUEUE_LIMIT,
                f"{MOST_WATCHERS} readers follow the events already",
                retry_after=RETRY_S,
            )
        self.watchers += 1
        try:
            if not after:
                after = self._oldest - 1
            while True:
                if after < self._oldest - 1:
                    gap = self._gap(after)
                    after = gap.number
                    yield gap
                elif after < self._last:
                    after += 1
                    event = self._ring[after % KEPT]
                    assert event is not None
                    yield event
                elif self._closed:
                    return
                else:
                    await self._changed.wait()
        finally:
            self.watchers -= 1

    @property
    def _oldest(self) -> int:
        """Number of the oldest event in the ring; the next one's if it is empty."""
        return max(self._base, self._last - KEPT) + 1

    def _gap(self, after: int) -> FeedEvent:
        """Stands for the events after `after` that the ring has lost. It has the last one's
        number."""
        end = self._oldest - 1
        data = {"lost": end - max(after, self._base), "earlier_life": after < self._base}
        return FeedEvent(number=end, kind=GAP, data=data)

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
