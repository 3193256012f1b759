"""The hosts that sessions share: so many, each replaced when it is lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import structlog
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from toolsvc.cluster.link import HostLink
from toolsvc.cluster.ray_cluster import nodes
from toolsvc.cluster.resources import Resources, check_room
from toolsvc.cluster.sessions import Sessions
from toolsvc.cluster.starting import Starter
from toolsvc.cluster.watching import watch
from toolsvc.edge.metrics import merge
from toolsvc.errors import StartError
from toolsvc.workers.restarts import Restarts

START_SECONDS = 120.0
"""For all hosts, at the service's start. Later ones wait for as long as the cluster has no room."""
PAGE_SECONDS = 5.0

log = structlog.get_logger("toolsvc.cluster")


class Fleet:
    """`run` until cancelled."""

    def __init__(
        self,
        sessions: Sessions[HostLink],
        starter: Starter,
        room: Resources,
        tools: tuple[str, ...],
        serving: Callable[[bool], Awaitable[None]],
    ) -> None:
        """`room`: of a host; `tools`: names of those that it serves; `serving`: told whether there
        is a host."""
        self._sessions = sessions
        self._starter = starter
        self._room = room
        self._tools = tools
        self._serving = serving
        self._slots: dict[int, HostLink] = {}
        self._replaced = self._lost = 0

    @property
    def hosts(self) -> list[HostLink]:
        """That live."""
        return [host for host in self._slots.values() if not host.lost]

    async def run(self, number: int, started: Callable[[], None]) -> None:
        """Starts so many hosts, says so, and keeps as many alive. StartError, in groups of
        exceptions, if one cannot start; later, if one cannot and no other lives."""
        try:
            async with asyncio.timeout(START_SECONDS), asyncio.TaskGroup() as group:
                for slot in range(number):
                    group.create_task(self._fill(slot))
        except TimeoutError:
            raise StartError(
                f"{len(self.hosts)} of {number} hosts of {self._room} were up after "
                f"{START_SECONDS:g} s: other work on the cluster holds what they need; see "
                "`ray status`"
            ) from None
        await self._serving(True)
        started()
        async with asyncio.TaskGroup() as group:
            for slot in range(number):
                group.create_task(self._keep(slot))

    async def metrics(self) -> list[Metric]:
        """Of every host that answers in time, and of the fleet itself."""
        slots = {slot: host for slot, host in self._slots.items() if not host.lost}

        async def page(host: HostLink) -> str:
            try:
                async with asyncio.timeout(PAGE_SECONDS):
                    return await host.page()
            except TimeoutError:
                return ""

        pages = await asyncio.gather(*map(page, slots.values()))
        return [
            GaugeMetricFamily("toolsvc_hosts", "living hosts that sessions share", len(slots)),
            CounterMetricFamily("toolsvc_hosts_replaced", "replaced hosts", self._replaced),
            CounterMetricFamily("toolsvc_sessions_lost", "lost with their hosts", self._lost),
            *merge(dict(zip(map(str, slots), pages, strict=True))),
        ]

    async def _fill(self, slot: int) -> None:
        host = await self._starter.start(self._room, self._tools)
        self._slots[slot] = host
        self._sessions.join(host)

    async def _keep(self, slot: int) -> None:
        """One slot: a host, its end, the next one."""
        restarts = Restarts()
        while True:
            began = time.monotonic()
            lost = await watch(self._slots[slot], self._sessions)
            self._lost += lost
            await self._serving(bool(self.hosts))
            await self._replace(slot, restarts, time.monotonic() - began)
            self._replaced += 1
            await self._serving(True)

    async def _replace(self, slot: int, restarts: Restarts, lived: float) -> None:
        while True:
            await asyncio.sleep(restarts.pause(lived))
            try:
                # In a thread, for Ray asks over the network and waits.
                check_room(1, self._room, await asyncio.to_thread(nodes))
                return await self._fill(slot)
            except StartError as error:
                if not self.hosts:
                    raise
                log.error("host not replaced", slot=slot, reason=str(error))  # noqa: TRY400
                lived = 0.0
