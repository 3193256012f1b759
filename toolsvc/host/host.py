"""Sessions, their leases and their calls: what the service does, without saying how it is spoken
to.

Invariants
- A call belongs to its session, not to whoever asked for it: once begun it ends by its own
  result, its run limit, CancelCall, or the end of its session, and by nothing else.
- Only results are recorded. A refusal, under which nothing ran, leaves the call id free.
- Calls of a tool without parallel calls run one after the other, in the order of asking.
- A session ends by CloseSession, by its lease, or with the host; each closes every tool's state.

It knows neither protobuf nor the inside of any tool; how one call runs is `calls`.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Coroutine, Iterable
from functools import partial
from typing import Any

import structlog

from toolsvc.errors import RETRY_SECONDS, Reason, Refused
from toolsvc.host.calls import Calls
from toolsvc.host.forking import check_fork, completed, standing_still
from toolsvc.host.ledger import CallIdReused, ResultForgotten
from toolsvc.host.observation import DEFAULT_LIMIT
from toolsvc.host.open_session import OpenSession, RunningCall, levels
from toolsvc.host.refusals import (
    draining,
    opened_otherwise,
    session_closed,
    session_lost,
    session_not_found,
    too_many_sessions,
    unknown_tool,
)
from toolsvc.host.task_blobs import DEFAULT_ROOM, TaskBlobs, Upload
from toolsvc.host.watch import Watch
from toolsvc.plugin.tool import Tool
from toolsvc.types import (
    CallRequest,
    Descriptor,
    ForkRequest,
    Held,
    Leases,
    Opened,
    OpenRequest,
    Recorded,
    Running,
)
from toolwright.rpc.options import LONGEST_WAIT
from toolwright.types import BlobRef

REAP_SECONDS = 1.0
LONGEST_LEASE = 24 * 3600.0
_TOMBSTONES = 8192

log = structlog.get_logger(__name__)


class Host:
    """Async context manager: starts its tools, ends every session and stops them."""

    def __init__(
        self,
        tools: Iterable[Tool],
        *,
        max_sessions: int = 1024,
        permits: int | None = None,
        observation_limit: int = DEFAULT_LIMIT,
        blob_room: int = DEFAULT_ROOM,
        watch: Watch | None = None,
    ) -> None:
        """`permits`: calls that may be starting at once; None = what the machine's cores allow.
        `observation_limit`: characters of one observation's texts. `blob_room`: bytes of all blobs
        of tasks."""
        self._tools = {tool.name: tool for tool in tools}
        self._descriptors = {name: tool.describe() for name, tool in self._tools.items()}
        self._max_sessions = max_sessions
        self._sessions: dict[str, OpenSession] = {}
        self._opening: dict[str, asyncio.Task[Opened]] = {}
        self._closed: OrderedDict[str, str] = OrderedDict()
        self._watch = watch or Watch()
        self._calls = Calls(permits=permits, observation_limit=observation_limit, watch=self._watch)
        self._task_blobs = TaskBlobs(blob_room)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._reaper: asyncio.Task[None] | None = None
        self._draining = False

    async def __aenter__(self) -> Host:
        started: list[Tool] = []
        try:
            for tool in self._tools.values():
                started.append(tool)
                await tool.start()
        except BaseException:
            for tool in reversed(started):
                await tool.stop()
            raise
        self._reaper = asyncio.create_task(self._reap())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._draining = True
        if self._reaper is not None:
            self._reaper.cancel()
            await asyncio.gather(self._reaper, return_exceptions=True)
        await asyncio.gather(
            *(self.close(name, "the service stopped") for name in self.session_ids)
        )
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for tool in self._tools.values():
            await tool.stop()

    @property
    def session_ids(self) -> list[str]:
        return list(self._sessions)

    @property
    def waiting(self) -> int:
        """Calls that wait for leave to start."""
        return self._calls.gate.waiting

    @property
    def blob_bytes(self) -> int:
        """Of tasks' blobs, held or still coming in."""
        return self._task_blobs.used

    def knows(self, session_id: str) -> bool:
        """Whether the session is open here, or was and is remembered."""
        return session_id in self._sessions or session_id in self._closed

    @property
    def isolation(self) -> str:
        """Of the tools that run foreign code; "" if there is none."""
        return levels(self._tools.values())

    @property
    def tools(self) -> tuple[Tool, ...]:
        """All that are served, with those that only give tools to sessions."""
        return tuple(self._tools.values())

    def list_tools(self) -> tuple[Descriptor, ...]:
        """Of the tools that every session may have."""
        return tuple(self._descriptors[name] for name, tool in self._tools.items() if tool.callable)

    async def fork(self, request: ForkRequest) -> Opened:
        """A second session with the state of the first, under the rules of `open`. Refused where
        the first is not here, is in the midst of a call, or has a tool that cannot be forked."""
        child = request.child
        if child.session_id in self._sessions or child.session_id in self._closed:
            return await self.open(child)
        parent = self._usable(request.parent)
        check_fork(parent, child)
        return await self.open(completed(child, parent), parent)

    async def open(self, request: OpenRequest, parent: OpenSession | None = None) -> Opened:
        """The session; the same one for a repetition of the same request. Refused otherwise.
        `parent`: the one that it is forked from."""
        name = request.session_id
        session = self._sessions.get(name)
        if session is not None:
            if session.digest != request.digest:
                raise opened_otherwise(name)
            if session.opened is not None:
                session.lease_until = max(session.lease_until, self._lease_end(request.lease))
                return session.opened
            return await self._when_open(name, self._opening[name])
        if name in self._closed:
            raise self._gone(name)
        if self._draining:
            raise draining()
        if len(self._sessions) >= self._max_sessions:
            raise too_many_sessions(name, self._max_sessions)
        wanted = dict.fromkeys(request.tools or self._tools)  # a name said twice is one tool
        for tool in wanted:
            if tool not in self._tools:
                raise unknown_tool(tool, self._tools)
        blobs = self._task_blobs.claim(name, request.blobs)
        session = OpenSession(request, wanted, blobs, self._lease_end(request.lease))
        self._sessions[name] = session
        self._opening[name] = opening = self._own(
            self._open(session, wanted, request.queue_limit, parent)
        )
        opening.add_done_callback(partial(self._opened, name))
        return await self._when_open(name, opening)

    async def call(self, request: CallRequest) -> Recorded | Running:
        """Begins the call, joins it, or answers what is recorded; Running after `wait`."""
        running = self.begin(request)
        if running.outcome is None:
            await running.wait(min(request.wait, LONGEST_WAIT))
        outcome = running.outcome
        if outcome is None:
            return running.so_far()
        if isinstance(outcome, Refused):
            raise outcome.with_traceback(None)  # It may be raised to several who ask.
        return outcome

    def begin(self, request: CallRequest) -> RunningCall:
        """The call, begun by this request or by an earlier one; it may have ended. Refused where
        nothing can run, or the call's result is not to be had."""
        session = self._session(request.session_id)
        try:
            running = session.ledger.find(request.call_id, request.digest, request.turn)
        except CallIdReused:
            raise Refused(
                Reason.CALL_ID_REUSED,
                f"call {request.call_id} came before with another request",
                subject=request.call_id,
                mend="give every action a call_id of its own",
            ) from None
        except ResultForgotten:
            raise Refused(
                Reason.RESULT_FORGOTTEN,
                f"turn {request.turn} was acknowledged and the result of call {request.call_id} "
                "is not held any more",
                subject=request.call_id,
            ) from None
        return self._begin(session, request) if running is None else running

    def look(self, session_id: str) -> Held:
        """What is held of a session; changes nothing. Refused as a call of it would be."""
        session = self._usable(session_id)
        return Held(call_ids=session.ledger.began, tools=session.descriptors)

    def blob(self, sha256: str) -> bytes:
        """Large media of an observation, or a task's. Refused if they are not held (any more)."""
        data = self._calls.blobs.get(sha256)
        if data is None:
            data = self._task_blobs.get(sha256)
        if data is None:
            raise Refused(
                Reason.BLOB_NOT_FOUND,
                f"no blob {sha256} is held here",
                subject=sha256,
                mend="fetch it before its session is closed",
            )
        return data

    def has_task_blob(self, sha256: str) -> bool:
        """Whether a session that names it can be opened."""
        return self._task_blobs.get(sha256) is not None

    def take_in(self, blob: BlobRef) -> Upload:
        """A blob of a task, about to come in pieces. Refused if it cannot be held."""
        if self._draining:
            raise draining()
        return self._task_blobs.take_in(blob)

    def cancel(self, session_id: str, call_id: str) -> bool:
        """Stops a call that is in flight; its result will say CANCELLED. False if none is."""
        running = self._session(session_id).ledger.get(call_id)
        if running is None:
            return False
        running.cancellation.request()
        if running.queueing and running.task is not None:
            running.task.cancel()
        return True

    def renew(self, owner: str, lease: float, believed: Iterable[str]) -> Leases:
        """Renews all leases of `owner`; tells which of `believed` are lost."""
        until = self._lease_end(lease)
        held = []
        for name, session in self._sessions.items():
            if session.info.owner == owner and session.lost is None:
                session.lease_until = max(session.lease_until, until)
                held.append(name)
        here = set(held)
        return Leases(lost=tuple(name for name in believed if name not in here), held=tuple(held))

    async def close(self, session_id: str, why: str = "it was closed") -> bool:
        """Ends a session and every call in it, also one that is only being opened; once it has
        begun it goes on where the caller is cancelled. False if it was not open."""
        opening = self._opening.get(session_id)
        if opening is not None:
            self._remember(session_id, why)
            opening.cancel()
            await asyncio.wait((opening,))
        session = self._sessions.pop(session_id, None)
        if session is None:
            return opening is not None
        self._remember(session_id, why)
        tasks = _tasks([session])
        for task in tasks:
            task.cancel()
        await asyncio.shield(self._own(self._end(session, tasks)))
        return True

    async def drain(self, grace: float) -> None:
        """Begins nothing new, and gives what runs `grace` seconds to end."""
        self._draining = True
        running = _tasks(self._sessions.values())
        if running:
            log.info("draining", calls=len(running), sessions=len(self._sessions))
            await asyncio.wait(running, timeout=grace)

    def _session(self, session_id: str) -> OpenSession:
        session = self._sessions.get(session_id)
        if session is None or session.opened is None:
            raise self._gone(session_id)
        return session

    def _usable(self, session_id: str) -> OpenSession:
        session = self._session(session_id)
        lost = session.lost
        if lost is not None:
            raise session_lost(session_id, lost)
        return session

    def _remember(self, session_id: str, why: str) -> None:
        self._closed[session_id] = why
        while len(self._closed) > _TOMBSTONES:
            self._closed.popitem(last=False)

    def _gone(self, session_id: str) -> Refused:
        why = self._closed.get(session_id)
        return session_not_found(session_id) if why is None else session_closed(session_id, why)

    def _lease_end(self, lease: float) -> float:
        return time.monotonic() + min(lease, LONGEST_LEASE)

    def _own(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget_task)
        return task

    def _forget_task(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # Looked at, so that one which nobody waits for is not logged.

    async def _open(
        self,
        session: OpenSession,
        wanted: Iterable[str],
        limit: float,
        parent: OpenSession | None,
    ) -> Opened:
        name = session.info.session_id
        tools = [(self._tools[tool], self._descriptors[tool]) for tool in wanted]
        patience = asyncio.timeout(limit)
        try:
            async with patience:
                if parent is None:
                    return await session.open_tools(tools)
                with standing_still(parent):
                    session.ledger.inherit(parent.ledger.began)
                    return await session.open_tools(tools, parent)
        except BaseException as error:
            # As if it had never been asked for. Its states are closed first: until they are, a
            # retry joins this opening and begins no other.
            try:
                await asyncio.shield(self._own(session.close_tools()))
            finally:
                self._sessions.pop(name, None)
                self._task_blobs.forget(name)
            if not patience.expired():
                raise
            raise Refused(
                Reason.QUEUE_LIMIT,
                f"session {name} was not open after {limit:g} s",
                subject=name,
                retry_after=RETRY_SECONDS,
                mend="raise the queue limit",
            ) from error

    async def _when_open(self, name: str, opening: asyncio.Task[Opened]) -> Opened:
        """What the opening ends with; it goes on where the caller is cancelled."""
        await asyncio.wait((opening,))
        if opening.cancelled():
            raise self._gone(name)
        return opening.result()

    def _opened(self, name: str, opening: asyncio.Task[Opened]) -> None:
        if self._opening.get(name) is opening:  # a failed one may have a successor by now
            del self._opening[name]

    async def _end(self, session: OpenSession, calls: list[asyncio.Task[None]]) -> None:
        name = session.info.session_id
        if calls:
            await asyncio.wait(calls)
        for call in session.ledger.in_flight():
            call.end(self._gone(name))
        self._calls.blobs.forget(name)
        self._task_blobs.forget(name)
        await session.close_tools()

    def _begin(self, session: OpenSession, request: CallRequest) -> RunningCall:
        if self._draining:
            raise draining()
        lost = session.lost
        if lost is not None:
            raise session_lost(request.session_id, lost)
        return self._calls.begin(session, request)

    async def _reap(self) -> None:
        """Ends sessions whose lease was not renewed, and drops blobs that no session claimed."""
        while True:
            await asyncio.sleep(REAP_SECONDS)
            self._task_blobs.expire()
            now = time.monotonic()
            for name, session in list(self._sessions.items()):
                if session.lease_until < now and session.opened is not None:
                    log.warning("lease ended", session=name, owner=session.info.owner)
                    self._watch.lease_ended()
                    # Not awaited: a tool that is slow to close must not keep others open.
                    self._own(self.close(name, "its lease was not renewed"))


def _tasks(sessions: Iterable[OpenSession]) -> list[asyncio.Task[None]]:
    """Of their calls in flight."""
    running = (call for session in sessions for call in session.ledger.in_flight())
    return [call.task for call in running if call.task is not None]
