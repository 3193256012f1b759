"""All tool services of a recipe, and one trajectory's sessions there: opened, adopted, forked,
called, closed. `service.py` has each of them at one service.

Invariants
- Every opened session is closed, also after failure and cancellation. Its calls in flight are
  stopped before. The end of the lease reaps sessions that a close cannot reach.
- A trajectory has sessions only on the services of its task.
- A trajectory that waits for room on a service holds no session on services later in the recipe.
  Otherwise two trajectories could wait for each other for ever.
- A name stands for one tool: that of the first service, in the recipe's order, that has it.
- A session that a renewal reports as lost ends its attempt at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Literal

from engine.core.images.media import Media
from engine.core.time_limit import TimeLimit, loop_now
from engine.core.tools.calls import PendingCall
from engine.core.tools.link.counts import ServiceStatistics
from engine.core.tools.link.service_link import Connect
from engine.core.tools.process import ToolProcess
from engine.core.tools.replies import Reply, refused
from engine.core.tools.requests import call_request
from engine.core.tools.service import Service
from engine.core.tools.sessions.leases import Leases
from engine.core.tools.sessions.open_queue import ServiceFull
from engine.core.tools.sessions.session import ServiceSession
from engine.errors import (
    AttemptFailed,
    Fenced,
    ForkRefused,
    SessionLost,
    StartupError,
    TaskUnfit,
    first_of_group,
)
from engine.types import Call, SessionRef, ToolSpec, tools_of
from toolwright.recipe import Tool as ToolTable
from toolwright.text.truncation import Keep
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.types import Task, ToolErrorKind


class ToolServices:
    """All services of a recipe."""

    def __init__(
        self,
        tables: Mapping[str, ToolTable],
        owner: str,
        processes: Mapping[str, ToolProcess] | None = None,
        of_task: Mapping[str, Collection[str]] | None = None,
        *,
        connect: Connect | None = None,
        life: str = "",
    ) -> None:
        """owner: the same in every life of the engine. life: as for `Leases`. processes: by table,
        those that the engine starts itself. of_task: tables that a task uses, by the task's name; a
        task without an entry uses all. connect: as for `Service`. Raises StartupError if a `tls_ca`
        cannot be used."""
        own = processes or {}
        self._services = {
            name: Service(name, table, owner, own.get(name), connect=connect)
            for name, table in tables.items()
        }
        self._of_task = of_task or {}
        self.leases = Leases(self._services.values(), owner, life)
        self._leaves_open = False

    @property
    def services(self) -> Mapping[str, Service]:
        """The services by name."""
        return self._services

    @property
    def process_addresses(self) -> dict[str, str]:
        """Addresses of the engine's own services, by name."""
        return {name: one.address for name, one in self._services.items() if one.is_own}

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

        Raises StartupError for a service that does not start, does not answer or lacks a tool, and
        for two services with tools of one name.
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
        await self.leases.close_abandoned(going_on)

    async def open_session(
        self, session_id: str, task: Task, media: Sequence[Media] = (), *, fence: int = 0
    ) -> ToolSessions:
        """A session on every service of the task, whose media are `media`. Waits for a full service
        as long as it takes; cancellation ends that. fence: see `Assignment.fence`.

        Raises AttemptFailed if a service cannot open it, TaskUnfit for a task that cannot be sent.
        After failure and cancellation no session of it stays open.
        """
        name = self.leases.wire_id(session_id)
        services = self._used_by(task)
        with self._all_or_none() as opened:
            if len(services) > 1:
                await _open_at_once(services, name, task, media, opened, fence)
            again = _close_after_first_gap(services, opened)
            for service in services:
                if service.name not in opened:
                    # A service may remember that a session of this id was closed.
                    wire_id = f"{name}~" if service.name in again else name
                    opened[service.name] = await service.open_session(
                        wire_id, task, media, fence=fence
                    )
        return ToolSessions(self, [opened[service.name] for service in services])

    async def adopt(
        self, session_id: str, task: Task, refs: Sequence[SessionRef], *, fence: int = 0
    ) -> tuple[ToolSessions, frozenset[str]]:
        """The sessions of an earlier life, which go on, and the ids of all calls that have begun to
        run there.

        Raises SessionLost if one is gone, or its service cannot say; then the others are closed.
        Raises Fenced if a later life has one; then all stay open.
        """
        self.leases.adopt((session_id, *(ref.session_id for ref in refs)))
        services = [service.name for service in self._used_by(task)]
        missing = set(services) ^ {ref.service for ref in refs}
        if missing:
            self._close_refs(refs, fence)
            raise SessionLost(f"{session_id}: no session, or no service, for {sorted(missing)}")
        try:
            with first_of_group(AttemptFailed, Fenced):
                async with asyncio.TaskGroup() as group:
                    adopting = [
                        group.create_task(self._services[ref.service].adopt(ref, fence))
                        for ref in refs
                    ]
        except Fenced:
            raise
        except BaseException:
            self._close_refs(refs, fence)
            raise
        found = {session.name: session for session, _ in map(asyncio.Task.result, adopting)}
        ran = frozenset(call_id for one in adopting for call_id in one.result()[1])
        return ToolSessions(self, [found[name] for name in services]), ran

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
        name = self.leases.wire_id(session_id)
        with self._all_or_none() as forked:
            for session in parent.sessions:
                service = self._services[session.name]
                forked[session.name] = await service.fork(session, name, task, clock)
        return ToolSessions(self, forked.values())

    def close_session(
        self, session: ServiceSession, cancels: Sequence[pb.CancelCallRequest]
    ) -> None:
        """Stops the calls, then closes the session, in the background."""
        if not self._leaves_open:
            self._services[session.name].close_in_background(session, cancels)

    def keep_sessions_open(self) -> None:
        """From now on closed trajectories leave their sessions and calls open. A later life of the
        engine, or the end of the lease, ends them."""
        self._leaves_open = True

    async def keep_processes(self) -> None:
        """Restarts the engine's own services whenever they end. Raises StartupError, in a group, if
        one does not start."""
        async with asyncio.TaskGroup() as group:
            for service in self._services.values():
                group.create_task(service.keep_running())

    async def keep_leases(self) -> None:
        """Renews each service's leases. Runs until cancelled."""
        await self.leases.keep_renewed()

    def _used_by(self, task: Task) -> list[Service]:
        """Services of a task, in one order for all tasks. Otherwise two trajectories could wait for
        each other's room."""
        used = self._of_task.get(task.name, self._services)
        return [service for name, service in self._services.items() if name in used]

    def _close_refs(self, refs: Sequence[SessionRef], fence: int) -> None:
        for ref in refs:
            if ref.service in self._services:
                self._services[ref.service].close_if_open(ref.session_id, ref.endpoint, fence)

    @contextmanager
    def _all_or_none(self) -> Iterator[dict[str, ServiceSession]]:
        """Sessions by service, to be filled. If the block fails or is cancelled, they are
        closed."""
        sessions: dict[str, ServiceSession] = {}
        try:
            yield sessions
        except BaseException:
            for name, session in sessions.items():
                self._services[name].close_in_background(session)
            raise


class ToolSessions:
    """The sessions of one trajectory, open until `close`."""

    def __init__(self, services: ToolServices, sessions: Iterable[ServiceSession]) -> None:
        """sessions: in the order of the recipe's services."""
        self.sessions = tuple(sessions)
        self.pending: list[PendingCall] = []
        """Calls that may still be in flight."""
        self._services = services
        self._closed = False
        self._timeout: asyncio.Timeout | None = None
        for session in self.sessions:
            session.on_lost = self._end_if_lost

    @property
    def refs(self) -> tuple[SessionRef, ...]:
        """References by which a later life of the engine finds the sessions."""
        return tuple(session.ref for session in self.sessions)

    @property
    def stateless(self) -> bool:
        """Whether no call changes what later calls see: then fresh sessions would do as well."""
        return all(session.stateless for session in self.sessions)

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """All tools that the sessions have now; a call may add some."""
        return tools_of(self.refs)

    def session_of(self, tool: str) -> ServiceSession:
        """The session that has the tool, else the first one."""
        return self._holder(tool) or self.sessions[0]

    def keep_of(self, tool: str) -> Keep | Literal[""]:
        """`observation_keep` of the tool's service; "" for an unknown tool or no rule."""
        found = self._holder(tool)
        return found.table.observation_keep if found else ""

    def dispatch(
        self, call: Call, *, call_id: str, turn: int, turns_left: int
    ) -> PendingCall | Reply:
        """Sends the call now; await its `result`.

        A call that no service could take is the policy's mistake. The policy gets an answer that
        says so, at once.
        """
        session = self._session_for(call)
        if session is None:
            names = ", ".join(tool.name for tool in self.tools) or "none"
            reason = f"there is no tool {call.tool!r}, only {names}"
            return Reply(outcome=refused(reason, ToolErrorKind.UNKNOWN_TOOL))
        try:
            message = call_request(session, call, call_id, turn, turns_left)
        except (TypeError, ValueError, OverflowError) as error:
            return Reply(outcome=refused(f"the arguments cannot be sent: {error}"))
        return self._send(session, message)

    def resend(self, call: Call, *, call_id: str, turn: int, turns_left: int) -> PendingCall:
        """Sends a call of an earlier life again, as the same request under the same id.

        `turns_left` must be what it was then, because services compare whole requests. Raises
        SessionLost if the trajectory has no session on `call.service`.
        """
        session = self._session_on(call.service)
        if session is None:
            raise SessionLost(f"call {call_id} went to tools.{call.service}, which is gone")
        return self._send(session, call_request(session, call, call_id, turn, turns_left))

    @asynccontextmanager
    async def until_lost(self) -> AsyncIterator[None]:
        """Context whose block ends with SessionLost as soon as a session is known to be lost."""
        try:
            async with asyncio.timeout(None) as timeout:
                self._timeout = timeout
                self._end_if_lost()
                yield
        except TimeoutError:
            if not timeout.expired():
                raise
            raise SessionLost(f"{self._lost} is lost, says the renewal of its lease") from None
        finally:
            self._timeout = None

    async def check_reach(self) -> None:
        """Raises ToolServiceFailed if a service that owes the result of a call does not answer."""
        for session in self.sessions:
            if any(one.session is session and not one.settled for one in self.pending):
                await session.check_reach()

    def close(self) -> None:
        """Closes the sessions in the background. Calls in flight are stopped before."""
        if self._closed:
            return
        self._closed = True
        for session in self.sessions:
            calls = [one for one in self.pending if one.session is session]
            stops = [stop for one in calls if (stop := one.drop())]
            self._services.close_session(session, stops)

    @property
    def _lost(self) -> str:
        """The first session that is lost, in words; "" without one."""
        lost = (session for session in self.sessions if session.is_lost)
        return next((f"tools.{one.name}: session {one.session_id}" for one in lost), "")

    def _end_if_lost(self) -> None:
        if self._lost and self._timeout is not None and not self._timeout.expired():
            self._timeout.reschedule(loop_now())

    def _session_on(self, service: str) -> ServiceSession | None:
        return next((session for session in self.sessions if session.name == service), None)

    def _session_for(self, call: Call) -> ServiceSession | None:
        if call.tool:
            return self._holder(call.tool)
        return self._session_on(call.service) or next(iter(self.sessions), None)

    def _holder(self, tool: str) -> ServiceSession | None:
        holders = (s for s in self.sessions if any(one.name == tool for one in s.tools))
        return next(holders, None)

    def _send(self, session: ServiceSession, message: pb.CallToolRequest) -> PendingCall:
        pending = PendingCall(session, message)
        self.pending = [*(one for one in self.pending if not one.settled), pending]
        return pending


async def _open_at_once(
    services: Iterable[Service],
    name: str,
    task: Task,
    media: Sequence[Media],
    opened: dict[str, ServiceSession],
    fence: int,
) -> None:
    """Fills `opened`, by service; full services are left out."""

    async def open_one(service: Service) -> None:
        with suppress(ServiceFull):
            opened[service.name] = await service.open_session(
                name, task, media, queue=False, fence=fence
            )

    with first_of_group(AttemptFailed, TaskUnfit):
        async with asyncio.TaskGroup() as group:
            for service in services:
                group.create_task(open_one(service))


def _close_after_first_gap(
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
