"""Hosts of one session each, for sessions that need a GPU or much memory: started when the session
is opened, ended with it.

Invariant: when a session leaves the table, its actor ends, whether it was up or not.
"""

from __future__ import annotations

import asyncio

from toolsvc.errors import RETRY_SECONDS, Reason, Refused, StartError, backend_down
from toolsvc.fleet.hosts import Wanted
from toolsvc.fleet.link import HostLink
from toolsvc.fleet.sessions import Placed, SessionTable
from toolsvc.fleet.starting import Starter
from toolsvc.fleet.watching import watch


class OwnHosts:
    """Its tasks run in `group`, until `stop`."""

    def __init__(
        self, sessions: SessionTable[HostLink], starter: Starter, group: asyncio.TaskGroup
    ) -> None:
        self._sessions = sessions
        self._starter = starter
        self._group = group
        self._starting: dict[str, asyncio.Task[HostLink | Refused]] = {}
        self._living: dict[HostLink, asyncio.Task[None]] = {}
        self._stopped = False
        sessions.leaving.append(self._release)

    def start(self, placed: Placed[HostLink], tools: tuple[str, ...], limit: float) -> None:
        """Begins to start the session's host, within `limit` seconds."""
        starting = self._group.create_task(self._start(placed, tools, limit))
        self._starting[placed.session_id] = starting

    async def host_of(self, placed: Placed[HostLink]) -> HostLink:
        """The host of a session that was to be started, once it is up. Raises Refused if it cannot
        be had."""
        starting = self._starting[placed.session_id]
        await asyncio.wait((starting,))
        if starting.cancelled():
            self._sessions.find(placed.session_id)
            raise backend_down("the service is ending")
        host = starting.result()
        if isinstance(host, Refused):
            raise host.with_traceback(None)  # It may be raised to several callers.
        return host

    def stop(self) -> None:
        """Starts no more hosts and watches none; the caller ends the hosts."""
        self._stopped = True
        for task in (*self._starting.values(), *self._living.values()):
            task.cancel()

    async def _start(
        self, placed: Placed[HostLink], tools: tuple[str, ...], limit: float
    ) -> HostLink | Refused:
        try:
            async with asyncio.timeout(limit):
                wanted = Wanted(
                    slot=None, needs=placed.needs, tools=tools, closed=self._sessions.closed
                )
                host = await self._starter.start(wanted)
        except TimeoutError:
            self._sessions.drop(placed)
            return Refused(
                Reason.QUEUE_LIMIT,
                f"session {placed.session_id} got no actor with {placed.needs} within {limit:g} s",
                subject=placed.session_id,
                retry_after=RETRY_SECONDS,
                fix="close sessions, add nodes, or raise the queue limit",
            )
        except StartError as error:
            self._sessions.drop(placed)
            return backend_down(f"session {placed.session_id} has no host: {error}")
        del self._starting[placed.session_id]
        placed.host = host
        self._living[host] = self._group.create_task(self._watch(host))
        return host

    async def _watch(self, host: HostLink) -> None:
        await watch(host, self._sessions)
        del self._living[host]

    def _release(self, placed: Placed[HostLink]) -> None:
        starting = self._starting.pop(placed.session_id, None)
        if starting is not None and starting is not asyncio.current_task():
            starting.cancel()
        if placed.host in self._living and not self._stopped:
            self._group.create_task(placed.host.end())
