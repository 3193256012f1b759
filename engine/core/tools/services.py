"""All tool services of a recipe: sessions open on every one of them, are kept, and are closed.

Invariants
- Every session that was opened is closed, also after failure and cancellation, and its calls
  still in flight are stopped before; what a close cannot reach, the lease's end reaps.
- A trajectory has sessions on the services of its task alone.
- A trajectory that waits for room on a service holds no session on a later one, in the recipe's
  order: two that wait would wait for each other for ever.
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
from engine.core.tools.tool_sessions import Environment
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
        """`owner`: the same in every life of the engine. `processes`: by table, those that the
        engine starts itself. `of_task`: by a task's name, the tables that it uses; a task that is
        not there uses all. `connect`: as for `Service`. StartupError for a `tls_ca` that cannot be
        used."""
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
        """Sessions of an earlier life that stay open; None until that is said."""
        self._found: set[str] = set()
        """Sessions of an earlier life that were asked for: they are this life's now."""
        self._leaves_open = False

    def statistics(self) -> dict[str, ServiceStatistics]:
        """What is counted of each service, by its name."""
        return {name: service.statistics for name, service in self._services.items()}

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the services, in the recipe's order."""
        return tuple(self._services)

    def opened(self, service: str) -> int:
        """Sessions that were opened there since the start."""
        return self._services[service].counts.opened

    async def open(self, *, patient: bool = False) -> dict[str, list[ToolSpec]]:
        """Starts what is the engine's to start, all at once, connects, and lists the tools that
        the recipe takes of each service; single sessions may have more. Sessions of an earlier
        life stay open until `close_strangers`.

        patient: a service that is away is waited for, as long as its `patience_s` says.

        StartupError names the service that does not start or answer or lacks a tool, and the two
        that have tools of one name.
        """
        services = self._services.values()
        with first_of_group(StartupError):
            async with asyncio.TaskGroup() as group:
                for service in services:
                    group.create_task(service.start())
        found = {service.name: await service.describe(patient=patient) for service in services}
        for used in self._of_task.values() or (self._services,):
            _refuse_namesakes(tool for name in used for tool in found[name])
        return found

    async def close(self) -> None:
        """Closes the sessions that wait for it, then the services."""
        await asyncio.gather(*(service.close() for service in self._services.values()))

    async def close_strangers(self, going_on: Collection[str]) -> None:
        """Closes the sessions of this owner that are open from an earlier life, but for those of
        the ids `going_on`, as `open_session` was given them or as a SessionRef has them."""
        self._kept = frozenset(going_on)

        async def close(leases: Leases) -> None:
            leases.close_strangers(await leases.renew(), self._is_stranger)

        await asyncio.gather(*(close(leases) for leases in self._leases.values()))

    async def open_session(
        self,
        session_id: str,
        task: Task,
        media: Sequence[Media] = (),
        clock: TimeLimit | None = None,
    ) -> Environment:
        """A session on every service of the task, whose media are `media`. Waits where a service is
        full, for as long as it takes; cancellation ends that. `clock` stands still meanwhile.

        AttemptFailed when one cannot open it, TaskUnfit for a task that cannot be sent. After
        failure and cancellation nothing of it stays open.
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
                    self._services[session.name].close_soon(session)
        return self._environment([opened[service.name] for service in services], clock)

    async def adopt(
        self, session_id: str, task: Task, refs: Sequence[SessionRef]
    ) -> tuple[Environment, frozenset[str]]:
        """The sessions of an earlier life, which go on, and the ids of all calls that have begun to
        run there.

        SessionLost when one is gone, or its service cannot tell; the others are closed then.
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
                self._give_up(refs)
        return self._environment([found[name] for name in services]), frozenset(ran)

    async def fork(
        self,
        parent: Environment,
        session_id: str,
        task: Task,
        clock: TimeLimit | None = None,
    ) -> Environment:
        """Second sessions with the state of the parent's, fresh ones where they have none. The
        parent must have no call in flight. `clock` stands still while a service is away.

        ForkRefused where a service cannot, or is full. After failure nothing of it stays open.
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
                    self._services[session.name].close_soon(session)
        return self._environment(forked.values())

    def leave_open(self) -> None:
        """From now on an environment that closes leaves its sessions and calls to a later life of
        the engine, or to the leases' end."""
        self._leaves_open = True

    async def keep_processes(self) -> None:
        """Starts what the engine has started again whenever it ends. StartupError, in a group,
        where it does not start."""
        async with asyncio.TaskGroup() as group:
            for service in self._services.values():
                group.create_task(service.keep_running())

    async def keep_leases(self) -> None:
        """Renews each service's leases; runs until cancelled."""
        async with asyncio.TaskGroup() as group:
            for leases in self._leases.values():
                group.create_task(leases.keep_renewed(self._is_stranger))

    def _wire_id(self, session_id: str) -> str:
        """Led by the owner's, for several engines may share a service; another in each life of the
        engine, for a service remembers sessions that were closed."""
        return f"{self._owner[:8]}/{session_id}@{self._life}"

    def _is_stranger(self, wire_id: str) -> bool:
        if self._kept is None:
            return False
        names = {wire_id, wire_id.partition("/")[2].rpartition("@")[0]}
        return bool(names & self._found) or not names & self._kept

    def _used_by(self, task: Task) -> list[Service]:
        """In one order for all tasks: two that wait for room would else wait for each other."""
        used = self._of_task.get(task.name, self._services)
        return [service for name, service in self._services.items() if name in used]

    def _environment(
        self, sessions: Iterable[ServiceSession], clock: TimeLimit | None = None
    ) -> Environment:
        return Environment(sessions, self._close_environment, clock)

    def _close_environment(self, environment: Environment) -> None:
        for session in environment.sessions:
            calls = [one for one in environment.pending if one.session is session]
            stops = [stop for one in calls if (stop := one.drop())]
            if self._leaves_open:
                continue
            self._services[session.name].close_soon(session, stops)

    def _give_up(self, refs: Sequence[SessionRef]) -> None:
        """Closes what there still is of an earlier life's sessions."""
        for ref in refs:
            service = self._services.get(ref.service)
            if service is not None:
                service.sessions.pop(ref.session_id, None)
                service.close_unknown(ref.session_id, ref.endpoint)

    async def _open_at_once(
        self,
        services: Iterable[Service],
        name: str,
        task: Task,
        media: Sequence[Media],
        clock: TimeLimit | None,
        opened: dict[str, ServiceSession],
    ) -> None:
        """Fills `opened`, by service; those that are full are left out."""

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
    """Closes the sessions on services behind the first that has none, and takes them out of
    `opened`; returns the names of these services."""
    closed: set[str] = set()
    gap = False
    for service in services:
        if service.name not in opened:
            gap = True
        elif gap:
            service.close_soon(opened.pop(service.name))
            closed.add(service.name)
    return closed


def _refuse_namesakes(tools: Iterable[ToolSpec]) -> None:
    """A call names its tool, so two services of one recipe cannot both have it. StartupError."""
    seen: dict[str, ToolSpec] = {}
    for tool in tools:
        first = seen.setdefault(tool.name, tool)
        if first.service != tool.service:
            raise StartupError(
                f"tools.{first.service} and tools.{tool.service} both have a tool "
                f"{tool.name!r}: leave it out of one of them with tools.{tool.service}.names"
            )
