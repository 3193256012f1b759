"""All tool services of a recipe: sessions are opened on each of them, kept and closed.

Invariants
- Every opened session is closed, also after failure and cancellation. Its calls in flight are
  stopped before. The end of the lease reaps sessions that a close cannot reach.
- A trajectory has sessions only on the services of its task.
- A trajectory that waits for room on a service holds no session on a later one, in the recipe's
  order. Otherwise two trajectories could wait for each other for ever.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress

from engine.core.images.media import Media
from engine.core.time_limit import TimeLimit
from engine.core.tools.link.counts import ServiceStatistics
from engine.core.tools.process import ToolProcess
from engine.core.tools.service import Connect, Service
from engine.core.tools.sessions.leases import Leases
from engine.core.tools.sessions.session import ServiceSession
from engine.core.tools.sessions.session_opener import ServiceFull
from engine.core.tools.sessions.session_reuse import adopt_session, fork_session
from engine.core.tools.tool_sessions import ToolSessions
from engine.errors import (
    AttemptFailed,
    ForkRefused,
    SessionLost,
    StartupError,
    TaskUnfit,
    first_of_group,
)
from engine.types import SessionRef, ToolSpec
from toolwright.recipe import Tool as ToolTable
from toolwright.types import Task


class ToolServices:
    """All services of a recipe, the leases of this engine's sessions, and their closing."""

    def __init__(
        self,
        tables: Mapping[str, ToolTable],
        owner: str,
        processes: Mapping[str, ToolProcess] | None = None,
        of_task: Mapping[str, Collection[str]] | None = None,
        *,
        connect: Connect | None = None,
    ) -> None:
        """owner: the same in every life of the engine. processes: by table, those that the engine
        starts itself. of_task: tables that a task uses, by the task's name; a task without an entry
        uses all. connect: as for `Service`. Raises StartupError if a `tls_ca` cannot be used."""
        own = processes or {}
        self._owner = owner
        self._life = secrets.token_hex(3)
        self._services = {
            name: Service(name, table, owner, own.get(name), connect=connect)
            for name, table in tables.items()
        }
        self._of_task = of_task or {}
        self._leases = {name: Leases(service) for name, service in self._services.items()}
        self._kept: frozenset[str] | None = None
        """Sessions of an earlier life that stay open; None until `close_abandoned` names them."""
        self._found: set[str] = set()
        """Sessions of an earlier life that were adopted: they belong to this life now."""
        self._leaves_open = False

    def statistics(self) -> dict[str, ServiceStatistics]:
        """Statistics of each service by its name."""
        return {name: service.statistics for name, service in self._services.items()}

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the services, in the recipe's order."""
        return tuple(self._services)

    def opened(self, service: str) -> int:
        """Number of sessions that were opened there since the start."""
        return self._services[service].counts.opened

    async def open(self, *, wait_until_up: bool = False) -> dict[str, list[ToolSpec]]:
        """Starts the engine's own services, all at once, connects, and lists the tools that the
        recipe uses. Single sessions may have more tools. Sessions of an earlier life stay open
        until `close_abandoned`.

        wait_until_up: whether to wait for an unreachable service, as long as its `patience_s` says.

        Raises StartupError, which names the service that does not start, does not answer or lacks a
        tool, or the two services with tools of one name.
        """
        services = self._services.values()
        with first_of_group(StartupError):
            async with asyncio.TaskGroup() as group:
                for service in services:
                    group.create_task(service.start())
        found = {
            service.name: await service.describe(wait_until_up=wait_until_up)
            for service in services
        }
        for used in self._of_task.values() or (self._services,):
            _refuse_namesakes(tool for name in used for tool in found[name])
        return found

    async def close(self) -> None:
        """Closes the sessions that are due, then the services."""
        await asyncio.gather(*(service.close() for service in self._services.values()))

    async def close_abandoned(self, going_on: Collection[str]) -> None:
        """Closes this owner's sessions from an earlier life, except the ids in `going_on`. An id is
        written as `open_session` got it or as a SessionRef has it."""
        self._kept = frozenset(going_on)

        async def close(leases: Leases) -> None:
            leases.close_abandoned(await leases.renew(), self._is_abandoned)

        await asyncio.gather(*(close(leases) for leases in self._leases.values()))

    async def open_session(
        self,
        session_id: str,
        task: Task,
        media: Sequence[Media] = (),
        clock: TimeLimit | None = None,
    ) -> ToolSessions:
        """A session on every service of the task, whose media are `media`. Waits for a full service
        as long as it takes; cancellation ends that. `clock` stands still meanwhile.

        Raises AttemptFailed if a service cannot open it, TaskUnfit for a task that cannot be sent.
        After failure and cancellation no session of it stays open.
        """
        name = self._wire_id(session_id)
        services = self._used_by(task)
        opened: dict[str, ServiceSession] = {}
        whole = False
        try:
            if len(services) > 1:
                await self._open_at_once(services, name, task, media, clock, opened)
            again = _close_behind_first_gap(services, opened)
            for service in services:
                if service.name not in opened:
                    # A service may remember that a session of this id was closed.
                    wire_id = f"{name}~" if service.name in again else name
                    opened[service.name] = await service.open_session(
                        wire_id, task, media, clock=clock
                    )
            whole = True
        finally:
            if not whole:
                for session in opened.values():
                    self._services[session.name].close_in_background(session)
        return self._tool_sessions([opened[service.name] for service in services], clock)

    async def adopt(
        self, session_id: str, task: Task, refs: Sequence[SessionRef]
    ) -> tuple[ToolSessions, frozenset[str]]:
        """The sessions of an earlier life, which go on, and the ids of all calls that have begun to
        run there.

        Raises SessionLost if one is gone, or its service cannot say; then the others are closed.
        """
        self._found.update((session_id, *(ref.session_id for ref in refs)))
        services = [service.name for service in self._used_by(task)]
        missing = set(services) ^ {ref.service for ref in refs}
        found: dict[str, ServiceSession] = {}
        ran: set[str] = set()

        async def adopt(ref: SessionRef) -> None:
            found[ref.service], ids = await adopt_session(self._services[ref.service], ref)
            ran.update(ids)

        whole = False
        try:
            if missing:
                raise SessionLost(f"{session_id}: no session, or no service, for {sorted(missing)}")
            with first_of_group(AttemptFailed):
                async with asyncio.TaskGroup() as group:
                    for ref in refs:
                        group.create_task(adopt(ref))
            whole = True
        finally:
            if not whole:
                self._close_refs(refs)
        return self._tool_sessions([found[name] for name in services]), frozenset(ran)

    async def fork(
        self,
        parent: ToolSessions,
        session_id: str,
        task: Task,
        clock: TimeLimit | None = None,
    ) -> ToolSessions:
        """Second sessions with the state of the parent's, or fresh ones if they have no state. The
        parent must have no call in flight. `clock` stands still while a service is unreachable.

        Raises ForkRefused if a service cannot fork, or is full. After failure no session of it
        stays open.
        """
        if any(not pending.settled for pending in parent.pending):
            raise ForkRefused(f"{session_id}: its parent has calls in flight", permanent=True)
        name = self._wire_id(session_id)
        forked: dict[str, ServiceSession] = {}
        whole = False
        try:
            for session in parent.sessions:
                service = self._services[session.name]
                forked[session.name] = await fork_session(service, session, name, task, clock)
            whole = True
        finally:
            if not whole:
                for session in forked.values():
                    self._services[session.name].close_in_background(session)
        return self._tool_sessions(forked.values())

    def keep_sessions_open(self) -> None:
        """From now on closed trajectories leave their sessions and calls to a later life of the
        engine, or to the end of the lease."""
        self._leaves_open = True

    async def keep_processes(self) -> None:
        """Restarts the engine's own services whenever they end. Raises StartupError, in a group, if
        one does not start."""
        async with asyncio.TaskGroup() as group:
            for service in self._services.values():
                group.create_task(service.keep_running())

    async def keep_leases(self) -> None:
        """Renews each service's leases. Runs until cancelled."""
        async with asyncio.TaskGroup() as group:
            for leases in self._leases.values():
                group.create_task(leases.keep_renewed(self._is_abandoned))

    def _wire_id(self, session_id: str) -> str:
        """Session id on the wire. It begins with the owner's, since engines may share a service. It
        differs in each life of the engine, since a service remembers closed sessions."""
        return f"{self._owner[:8]}/{session_id}@{self._life}"

    def _is_abandoned(self, wire_id: str) -> bool:
        if self._kept is None:
            return False
        names = {wire_id, wire_id.partition("/")[2].rpartition("@")[0]}
        return bool(names & self._found) or not names & self._kept

    def _used_by(self, task: Task) -> list[Service]:
        """Services of a task, in one order for all tasks. Otherwise two trajectories could wait for
        each other's room."""
        used = self._of_task.get(task.name, self._services)
        return [service for name, service in self._services.items() if name in used]

    def _tool_sessions(
        self, sessions: Iterable[ServiceSession], clock: TimeLimit | None = None
    ) -> ToolSessions:
        return ToolSessions(sessions, self._close_sessions, clock)

    def _close_sessions(self, tool_sessions: ToolSessions) -> None:
        for session in tool_sessions.sessions:
            calls = [one for one in tool_sessions.pending if one.session is session]
            stops = [stop for one in calls if (stop := one.drop())]
            if self._leaves_open:
                continue
            self._services[session.name].close_in_background(session, stops)

    def _close_refs(self, refs: Sequence[SessionRef]) -> None:
        """Closes the remaining sessions of an earlier life."""
        for ref in refs:
            service = self._services.get(ref.service)
            if service is not None:
                service.sessions.pop(ref.session_id, None)
                service.close_if_open(ref.session_id, ref.endpoint)

    async def _open_at_once(
        self,
        services: Iterable[Service],
        name: str,
        task: Task,
        media: Sequence[Media],
        clock: TimeLimit | None,
        opened: dict[str, ServiceSession],
    ) -> None:
        """Fills `opened`, by service; full services are left out."""

        async def open_one(service: Service) -> None:
            with suppress(ServiceFull):
                opened[service.name] = await service.open_session(
                    name, task, media, clock=clock, queue=False
                )

        with first_of_group(AttemptFailed, TaskUnfit):
            async with asyncio.TaskGroup() as group:
                for service in services:
                    group.create_task(open_one(service))


def _close_behind_first_gap(
    services: Iterable[Service], opened: dict[str, ServiceSession]
) -> set[str]:
    """Closes the sessions on services after the first without one, and removes them from `opened`.
    Returns the names of these services."""
    closed: set[str] = set()
    gap = False
    for service in services:
        if service.name not in opened:
            gap = True
        elif gap:
            service.close_in_background(opened.pop(service.name))
            closed.add(service.name)
    return closed


def _refuse_namesakes(tools: Iterable[ToolSpec]) -> None:
    """Raises StartupError if two services have a tool of one name, since a call names only its
    tool."""
    seen: dict[str, ToolSpec] = {}
    for tool in tools:
        first = seen.setdefault(tool.name, tool)
        if first.service != tool.service:
            raise StartupError(
                f"tools.{first.service} and tools.{tool.service} both have a tool "
                f"{tool.name!r}: leave it out of one of them with tools.{tool.service}.names"
            )
