"""The opens that wait for room on one full service, first come, first served.

Invariants
- Waiting opens proceed one by one, in the order of their arrival.
- Only the first sends requests, and again at once when a session of this engine has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

import structlog

from engine.core.time_limit import loop_now

Opened = TypeVar("Opened")

FIRST_REPORT = 10.0
"""Seconds for which a service is full before the first log line. Further lines come at twice the
time again and again."""

log = structlog.get_logger("tools")


class ServiceFull(Exception):
    """The service reports that it holds as many sessions as it may."""

    def __init__(self, pause: float) -> None:
        """pause: seconds before the next request may follow."""
        super().__init__(pause)
        self.pause = pause


class OpenQueue:
    """The queue of one service."""

    def __init__(self, service: str) -> None:
        """service: its name, for the log."""
        self._service = service
        self._first = asyncio.Lock()
        self._room = asyncio.Event()
        self._since = 0.0
        self._report_at = FIRST_REPORT
        self.waiting = 0

    def made_room(self) -> None:
        """Records that a session has ended."""
        self._room.set()

    async def run(
        self,
        work: Callable[[], Awaitable[Opened]],
        *,
        wait: bool,
        on_wait: Callable[[], None],
    ) -> Opened:
        """The result of `work`, which is repeated until it does not raise ServiceFull.

        Without `wait`, raises ServiceFull if others wait or `work` raises it. on_wait: called
        before the wait in the queue.
        """
        if not self.waiting:
            try:
                return await work()
            except ServiceFull:
                if not wait:
                    raise
        elif not wait:
            raise ServiceFull(0.0)
        on_wait()
        if not self.waiting:
            self._since = loop_now()
            self._report_at = FIRST_REPORT
        self.waiting += 1
        try:
            async with self._first:
                while True:
                    self._room.clear()  # first, so that no end is missed
                    try:
                        return await work()
                    except ServiceFull as full:
                        await self._until_room(full.pause)
        finally:
            self.waiting -= 1

    async def _until_room(self, pause: float) -> None:
        """Returns when one more session may fit, or after `pause` seconds."""
        full = loop_now() - self._since
        if full >= self._report_at:
            self._report_at *= 2
            log.warning(
                "tool_service_full",
                service=self._service,
                waiting=self.waiting,
                seconds=round(full, 1),
            )
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._room.wait()
