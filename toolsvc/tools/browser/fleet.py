"""The browsers of a service, and which of them a session gets.

Invariants
- At most `sessions` sessions hold a seat, at most `per_browser` in one browser; others wait.
- A browser that ended, that holds too much memory, or that served its share of sessions, takes no
  new ones. Chromium grows with what it has done.
- A browser without sessions is closed, unless it is the only one: the next session finds it warm.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from toolsvc.tools.browser.chromium import Chromium

SHARE = 1000
"""Sessions that one browser serves in its life."""

log = structlog.get_logger(__name__)


class Berth:
    """A browser and how many sessions are in it."""

    def __init__(self, chromium: Chromium) -> None:
        self.chromium = chromium
        self.sessions = 0
        self.served = 0

    def retire(self) -> None:
        """Takes no new sessions."""
        self.served = SHARE

    def has_room(self, per_browser: int) -> bool:
        chromium = self.chromium
        used_up = chromium.ended.is_set() or chromium.overgrown or self.served >= SHARE
        return not used_up and self.sessions < per_browser


class BrowserFleet:
    """Starts browsers as sessions come, and closes them as they go."""

    def __init__(
        self, start: Callable[[], Awaitable[Chromium]], *, sessions: int, per_browser: int
    ) -> None:
        """`start` may raise BrowserUnavailable, which `take` hands on."""
        self._start = start
        self._per_browser = per_browser
        self._seats = asyncio.Semaphore(sessions)
        self._starting = asyncio.Lock()
        self._berths: list[Berth] = []
        self._waiting = 0
        self._lost = 0
        self._killed_pages = 0

    def figures(self) -> dict[str, float]:
        """Fill of the fleet, for the metrics page."""
        return {
            "browsers": len(self._berths),
            "browser_sessions": sum(berth.sessions for berth in self._berths),
            "browser_sessions_waiting": self._waiting,
            "browsers_lost_total": self._lost,
            "pages_killed_total": self._killed_pages
            + sum(berth.chromium.killed_pages for berth in self._berths),
        }

    async def start(self) -> None:
        """Starts the first browser, to show that it works here."""
        self._berths.append(Berth(await self._start()))

    async def stop(self) -> None:
        while self._berths:
            await self._close(self._berths[0])

    async def take(self) -> Berth:
        """A seat, which the caller must `give_back`."""
        self._waiting += 1
        try:
            await self._seats.acquire()
        finally:
            self._waiting -= 1
        try:
            async with self._starting:
                berth = await self._with_room()
                berth.sessions += 1
                berth.served += 1
                return berth
        except BaseException:
            self._seats.release()
            raise

    async def give_back(self, berth: Berth) -> None:
        """Returns a seat. Call it once for each seat, when nothing of the session is left in the
        browser."""
        berth.sessions -= 1
        self._seats.release()
        spare = len(self._berths) > 1 or not berth.has_room(self._per_browser)
        if berth.sessions == 0 and spare and berth in self._berths:
            await self._close(berth)

    async def _with_room(self) -> Berth:
        for berth in self._berths:
            if berth.has_room(self._per_browser):
                return berth
        for berth in [one for one in self._berths if one.sessions == 0]:
            await self._close(berth)
        self._berths.append(Berth(await self._start()))
        return self._berths[-1]

    async def _close(self, berth: Berth) -> None:
        self._berths.remove(berth)
        if berth.chromium.ended.is_set():
            self._lost += 1
        self._killed_pages += berth.chromium.killed_pages
        await berth.chromium.close()
