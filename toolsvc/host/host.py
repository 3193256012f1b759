"""Sessions, their leases and their calls, for any protocol.

Invariants
- A call belongs to its session, not to its request. Once begun it ends by its own result, its run
  limit, CancelCall, or the end of its session, and by nothing else.
- Only results are recorded. A refusal, under which nothing ran, leaves the call id free.
- Calls of a tool without parallel calls run one after the other, in the order of asking.
- A session ends by CloseSession, by its lease, with the host, or for another session if its opener
  allowed that. Each of these closes every tool's state.
- A session belongs to its opener (`toolwright.rpc.auth.caller`); no other caller finds it.
- Every tool that was started is stopped, whatever the others do.

The host knows no protobuf and no tool. `sessions` opens and closes sessions, `calls` runs calls.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

import structlog

from toolsvc.errors import Reason, Refused
from toolsvc.host.calls import Calls
from toolsvc.host.forking import check_fork, completed
from toolsvc.host.ledger import CallIdReused, ResultForgotten
from toolsvc.host.observation import DEFAULT_LIMIT
from toolsvc.host.open_session import OpenSession, RunningCall, levels
from toolsvc.host.refusals import draining, session_lost
from toolsvc.host.sessions import Sessions, lease_end, running_tasks
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
from toolwright.rpc.auth import caller
from toolwright.rpc.options import LONGEST_WAIT
from toolwright.types import BlobRef

REAP_SECONDS = 1.0
STOP_SECONDS = 30.0
"""Longest stop of one tool, in seconds; a slower one is abandoned."""

log = structlog.get_logger(__name__)


class Host:
    """Async context manager: starts its tools, ends every session and stops them."""

    def __init__(
        self,
        tools: Iterable[Tool],
        *,
        max_sessions: int = 1024,
        observation_limit: int = DEFAULT_LIMIT,
        blob_room: int = DEFAULT_ROOM,
        watch: Watch | None = None,
    ) -> None:
        """`observation_limit`: characters of one observation's texts. `blob_room`: bytes of the
        blobs of all tasks."""
        self._tools = {tool.name: tool for tool in tools}
        self._descriptors = {name: tool.describe() for name, tool in self._tools.items()}
        self._watch = watch or Watch()
        self._calls = Calls(observation_limit=observation_limit, watch=self._watch)
        self._task_blobs = TaskBlobs(blob_room)
        self._sessions = Sessions(
            {name: (tool, self._descriptors[name]) for name, tool in self._tools.items()},
            most=max_sessions,
            blobs=self._calls.blobs,
            task_blobs=self._task_blobs,
        )
        self._started: list[Tool] = []
        self._reaper: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Host:
        try:
            for tool in self._tools.values():
                self._started.append(tool)
                await tool.start()
        except BaseException:
            await self._stop_tools()
            raise
        self._reaper = asyncio.create_task(self._reap())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._sessions.draining = True
        try:
            if self._reaper is not None:
                self._reaper.cancel()
                await asyncio.gather(self._reaper, return_exceptions=True)
            await self._sessions.close_all("the service stopped")
        finally:
            await self._stop_tools()

    async def _stop_tools(self) -> None:
        """Stops all tools that were started, the last first, whatever each of them does."""
        while self._started:
            tool = self._started.pop()
            try:
                async with asyncio.timeout(STOP_SECONDS):
                    await tool.stop()
            except Exception:
                log.exception("stop failed", tool=tool.name)

    @property
    def session_ids(self) -> list[str]:
        return self._sessions.ids

    @property
    def waiting(self) -> int:
        """Calls that wait to start: for an earlier call, or for what their tool needs first."""
        return self._calls.waiting

    @property
    def blob_bytes(self) -> int:
        """Bytes of tasks' blobs, held or still coming in."""
        return self._task_blobs.used

    def knows(self, session_id: str) -> bool:
        """Whether the session is open here, or has ended and is remembered."""
        return self._sessions.known(session_id)

    @property
    def isolation(self) -> str:
        """Levels of isolation of the tools that run foreign code; "" if no tool does."""
        return levels(self._tools.values())

    @property
    def tools(self) -> tuple[Tool, ...]:
        """All served tools, including those that only give tools to sessions."""
        return tuple(self._tools.values())

    def list_tools(self) -> tuple[Descriptor, ...]:
        """Descriptors of the tools that every session may have."""
        return tuple(self._descriptors[name] for name, tool in self._tools.items() if tool.callable)

    async def fork(self, request: ForkRequest) -> Opened:
        """Second session with the state of the first, under the rules of `open`. Raises Refused if
        the first is not here, has a running call, or has a tool that cannot be forked."""
        child = request.child
        if self._sessions.known(child.session_id):
            return await self._sessions.open(child)
        parent = self._sessions.usable(request.parent)
        check_fork(parent, child)
        return await self._sessions.open(completed(child, parent), parent)

    async def open(self, request: OpenRequest) -> Opened:
        """Session of the request; a repetition gets the same one. Raises Refused otherwise."""
        return await self._sessions.open(request)

    async def call(self, request: CallRequest) -> Recorded | Running:
        """Result of the call, which this request begins, joins or repeats; Running after `wait`."""
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
        """Call of this request or of an earlier equal one; it may have ended. Raises Refused if
        nothing can run, or if the result was forgotten."""
        session = self._sessions.find(request.session_id)
        session.check_fence(request.fence)
        try:
            running = session.ledger.find(request.call_id, request.digest, request.turn)
        except CallIdReused:
            raise Refused(
                Reason.CALL_ID_REUSED,
                f"call {request.call_id} came before with another request",
                subject=request.call_id,
                fix="give every action a call_id of its own",
            ) from None
        except ResultForgotten:
            raise Refused(
                Reason.RESULT_FORGOTTEN,
                f"turn {request.turn} was acknowledged and the result of call {request.call_id} "
                "is not held any more",
                subject=request.call_id,
            ) from None
        return self._begin(session, request) if running is None else running

    def look(self, session_id: str, fence: int = 0) -> Held:
        """State of a session; changes nothing but its fence. Raises Refused as a call would."""
        self._sessions.find(session_id).check_fence(fence)
        session = self._sessions.usable(session_id)
        return Held(call_ids=session.ledger.began, tools=session.descriptors)

    def blob(self, sha256: str) -> bytes:
        """Large media of an observation, or of a task. Raises Refused if they are not held."""
        data = self._calls.blobs.get(sha256)
        if data is None:
            data = self._task_blobs.get(sha256)
        if data is None:
            raise Refused(
                Reason.BLOB_NOT_FOUND,
                f"no blob {sha256} is held here",
                subject=sha256,
                fix="fetch it before its session is closed",
            )
        return data

    def has_task_blob(self, sha256: str) -> bool:
        """Whether the blob is held, so that a session that names it can be opened."""
        return self._task_blobs.get(sha256) is not None

    def take_in(self, blob: BlobRef) -> Upload:
        """Upload of a task's blob, in pieces. Raises Refused if it cannot be held."""
        if self._sessions.draining:
            raise draining()
        return self._task_blobs.take_in(blob)

    def cancel(self, session_id: str, call_id: str, fence: int = 0) -> bool:
        """Stops a call in flight, whose result will be CANCELLED. False if it is not in flight."""
        session = self._sessions.find(session_id)
        session.check_fence(fence)
        running = session.ledger.get(call_id)
        if running is None:
            return False
        running.cancellation.request()
        if running.queueing and running.task is not None:
            running.task.cancel()
        return True

    def renew(self, owner: str, lease: float, believed: Iterable[str]) -> Leases:
        """Renews all leases of `owner`; the answer names those of `believed` that are lost."""
        until = lease_end(lease)
        held = []
        for session in self._sessions:
            mine = session.info.owner == owner and session.caller == caller()
            if mine and session.lost is None:
                session.lease_until = max(session.lease_until, until)
                held.append(session.info.session_id)
        here = set(held)
        return Leases(lost=tuple(name for name in believed if name not in here), held=tuple(held))

    async def close(self, session_id: str, why: str = "it was closed", fence: int = 0) -> bool:
        """Ends a session, also one that is being opened, and every call in it, even if the caller
        is cancelled meanwhile. False if it was not open. Raises Refused for a fence below one that
        came for it."""
        session = self._sessions.mine(session_id)
        if session is None:
            return False
        session.check_fence(fence)
        return await self._sessions.close(session_id, why)

    async def drain(self, grace: float) -> None:
        """Begins nothing new, and gives what runs `grace` seconds to end."""
        self._sessions.draining = True
        running = running_tasks(self._sessions)
        if running:
            log.info("draining", calls=len(running), sessions=len(self._sessions))
            await asyncio.wait(running, timeout=grace)

    def _begin(self, session: OpenSession, request: CallRequest) -> RunningCall:
        if self._sessions.draining:
            raise draining()
        lost = session.lost
        if lost is not None:
            raise session_lost(request.session_id, lost)
        return self._calls.begin(session, request)

    async def _reap(self) -> None:
        """Ends sessions whose lease has passed, and drops blobs that no session claimed."""
        while True:
            await asyncio.sleep(REAP_SECONDS)
            self._task_blobs.expire()
            now = time.monotonic()
            for session in self._sessions:
                if session.lease_until < now and session.opened is not None:
                    name = session.info.session_id
                    log.warning("lease ended", session=name, owner=session.info.owner)
                    self._watch.lease_ended()
                    self._sessions.close_later(name, "its lease was not renewed")
