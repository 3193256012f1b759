"""The hosts that sessions share: a fixed number of slots, each filled again when its host is
lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import structlog
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from toolsvc.edge.metrics import merge
from toolsvc.errors import StartError
from toolsvc.fleet.hosts import Wanted
from toolsvc.fleet.link import HostLink
from toolsvc.fleet.resources import Resources
from toolsvc.fleet.sessions import SessionTable
from toolsvc.fleet.starting import Starter
from toolsvc.fleet.watching import watch
from toolwright.process.backoff import Backoff

PAGE_SECONDS = 5.0
BACKOFF = Backoff(0.2, 30.0, jitter=False)
STEADY_SECONDS = 60.0
"""Lifetime of a host after which its death is not part of a crash loop, in seconds."""

log = structlog.get_logger("toolsvc.fleet")


class SharedHosts:
    """`start`, then `keep` until cancelled."""

    def __init__(
        self,
        sessions: SessionTable[HostLink],
        starter: Starter,
        room: Resources,
        tools: tuple[str, ...],
        serving: Callable[[bool], Awaitable[None]],
    ) -> None:
        """`room`: resources of a host; `tools`: names of the tools it serves, empty = all;
        `serving`: called with whether a host lives."""
        self._sessions = sessions
        self._starter = starter
        self._room = room
        self._tools = tools
        self._serving = serving
        self._slots: dict[int, HostLink] = {}
        self._replaced = self._lost = 0

    @property
    def hosts(self) -> list[HostLink]:
        """The living hosts."""
        return [host for host in self._slots.values() if not host.lost]

    async def start(self, number: int) -> list[HostLink]:
        """Starts `number` hosts and returns once all are up. Raises StartError, inside exception
        groups, if one cannot start."""
        async with asyncio.TaskGroup() as group:
            filling = [group.create_task(self._fill(slot)) for slot in range(number)]
        await self._serving(True)
        return [task.result() for task in filling]

    async def keep(self) -> None:
        """Keeps the number of hosts. Raises StartError, inside exception groups, if one cannot
        start and no other lives."""
        async with asyncio.TaskGroup() as group:
            for slot in self._slots:
                group.create_task(self._keep(slot))

    async def metrics(self) -> list[Metric]:
        """Metrics of every host that answers in time, and of the fleet itself."""
        slots = {slot: host for slot, host in self._slots.items() if not host.lost}

        async def page(host: HostLink) -> str:
            try:
                async with asyncio.timeout(PAGE_SECONDS):
                    return await host.page()
            except TimeoutError:
                return ""

        pages = await asyncio.gather(*map(page, slots.values()))
        return [
            GaugeMetricFamily(
                "toolwright_toolsvc_hosts", "living hosts that sessions share", len(slots)
            ),
            CounterMetricFamily(
                "toolwright_toolsvc_hosts_replaced", "replaced hosts", self._replaced
            ),
            CounterMetricFamily(
                "toolwright_toolsvc_sessions_lost", "lost with their hosts", self._lost
            ),
            *merge(dict(zip(map(str, slots), pages, strict=True))),
        ]

    async def _fill(self, slot: int) -> HostLink:
        wanted = Wanted(
            slot=slot, needs=self._room, tools=self._tools, closed=self._sessions.closed
        )
        host = self._slots[slot] = await self._starter.start(wanted)
        self._sessions.join(host)
        return host

    async def _keep(self, slot: int) -> None:
        """One slot: a host, its end, the next one."""
        deaths = 0
        while True:
            began = time.monotonic()
            lost = await watch(self._slots[slot], self._sessions)
            self._lost += lost
            await self._serving(bool(self.hosts))
            deaths = 0 if time.monotonic() - began >= STEADY_SECONDS else deaths
            deaths = await self._replace(slot, deaths)
            self._replaced += 1
            await self._serving(True)

    async def _replace(self, slot: int, deaths: int) -> int:
        """Fills the slot again, after pauses that double with each of the `deaths` in a row;
        returns their number."""
        while True:
            await asyncio.sleep(BACKOFF.pause(deaths))
            deaths += 1
            try:
                await self._fill(slot)
            except StartError as error:
                if not self.hosts:
                    raise
                log.error("host not replaced", slot=slot, reason=str(error))  # noqa: TRY400
            else:
                return deaths
