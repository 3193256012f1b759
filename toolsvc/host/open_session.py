"""State of an open session at its host: its tools' states, its ledger, its lease.

Invariants
- A session only gains tools: those that were asked for, then those that these give to it alone, at
  its opening and after their calls.
- Every state that was made is closed with the session, also that of a tool that came later.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial

import structlog

from toolsvc.errors import Refused
from toolsvc.host.ledger import Ledger
from toolsvc.host.refusals import fenced
from toolsvc.host.turnstile import Turnstile
from toolsvc.plugin.alarm import Alarm
from toolsvc.plugin.executors import Cancellation, Executor, LiveState, run_method
from toolsvc.plugin.tool import State, Tool
from toolsvc.types import Descriptor, Media, Opened, OpenRequest, Recorded, Running, SessionInfo
from toolwright.rpc.auth import caller

CLOSE_SECONDS = 10.0
"""Longest close of one tool's state, in seconds; a slower one is abandoned."""

log = structlog.get_logger(__name__)

_LATE: set[asyncio.Task[None]] = set()
"""Tasks that the event loop alone would not hold."""


class ToolNameTaken(Exception):
    """A tool gave a session a second tool of one name, though it can see the session's names."""


_ALWAYS_LIVE = LiveState()


class OpenTool:
    """A tool as one session has it."""

    __slots__ = ("descriptor", "executor", "gives_tools", "live", "state", "tool", "turnstile")

    def __init__(self, tool: Tool, descriptor: Descriptor, state: State) -> None:
        self.tool = tool
        self.descriptor = descriptor
        self.state = state
        self.live = state if isinstance(state, LiveState) else _ALWAYS_LIVE
        self.executor: Executor = type(tool).executor(tool)
        self.turnstile = Turnstile(tool.parallel_calls)
        self.gives_tools = type(tool).session_tools is not Tool.session_tools


class RunningCall:
    """A call that was begun, and its outcome; the ledger holds it until it is forgotten."""

    __slots__ = (
        "_waiting",
        "asked_at",
        "cancellation",
        "outcome",
        "queueing",
        "started_at",
        "task",
    )

    def __init__(self) -> None:
        self.cancellation = Cancellation()
        self.asked_at = time.perf_counter()
        self.started_at: float | None = None
        self.queueing = False
        self.task: asyncio.Task[None] | None = None
        """Task that runs it; None if the answer was there at once."""
        self.outcome: Recorded | Refused | None = None
        self._waiting: dict[Callable[[], object], Alarm] = {}

    def end(self, outcome: Recorded | Refused) -> None:
        """Sets the outcome, once, and wakes all that wait."""
        self.outcome = outcome
        waiting, self._waiting = self._waiting, {}
        for then, alarm in waiting.items():
            alarm.cancel()
            then()

    def tell(self, seconds: float, then: Callable[[], object]) -> None:
        """Calls `then` once: when the call has ended, or after `seconds`."""
        self._waiting[then] = Alarm(seconds, partial(self._late, then))

    def forget(self, then: Callable[[], object]) -> None:
        """Takes back what `tell` promised, unless it has happened."""
        alarm = self._waiting.pop(then, None)
        if alarm is not None:
            alarm.cancel()

    async def wait(self, seconds: float) -> None:
        """Waits until the call has ended, for at most `seconds`. Cancelling the wait leaves the
        call running. asyncio.wait would take longer than most calls run.
        """
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        wake = partial(_wake, waiting)
        self.tell(seconds, wake)
        try:
            await waiting
        finally:
            self.forget(wake)

    def _late(self, then: Callable[[], object]) -> None:
        if self._waiting.pop(then, None) is not None:
            then()

    def so_far(self) -> Running:
        queued, run = self.times()
        return Running(queued=queued, run=run)

    def times(self) -> tuple[float, float]:
        """Wait, for its turn and for others, and run of the call, both in seconds. Their sum is the
        time since the request."""
        now = time.perf_counter()
        started = now if self.started_at is None else self.started_at
        waited = self.cancellation.waited
        return started - self.asked_at + waited, now - started - waited


class OpenSession:
    """One trajectory's environment."""

    def __init__(
        self,
        request: OpenRequest,
        wanted: Iterable[str],
        blobs: Mapping[str, Media],
        lease_until: float,
    ) -> None:
        """wanted: names of the served tools that it will have. blobs: the task's media."""
        self.asked = tuple(wanted)
        """Names of its served tools, without the tools that these give to it."""
        self._names = set(self.asked)
        self.info = SessionInfo(
            session_id=request.session_id,
            owner=request.owner,
            metadata=request.metadata,
            names=self._names,
            blobs=blobs,
        )
        self.digest = request.digest
        self.caller = caller()
        """Caller that opened it."""
        self.lease_until = lease_until
        self._fence = 0
        """Highest fence of a request for it."""
        self._gives_way = request.gives_way
        self._lease = request.lease
        self.tools: dict[str, OpenTool] = {}
        """Tools that can be called, by name."""
        self._entries: list[OpenTool] = []
        """All tools, including those that only give tools."""
        self.descriptors: tuple[Descriptor, ...] = ()
        self.ledger: Ledger[RunningCall] = Ledger()
        self.opened: Opened | None = None
        self._adding = asyncio.Lock()
        """Lock without which two calls that end together would add the same tools twice."""

    @property
    def lost(self) -> str | None:
        """Reason why a tool's state is gone, or None."""
        for entry in self._entries:
            if entry.live.lost is not None:
                return entry.live.lost
        return None

    def check_fence(self, fence: int) -> None:
        """Raises Refused for a caller that the session has left; 0 = a caller without a fence."""
        if 0 < fence < self._fence:
            raise fenced(self.info.session_id, fence, self._fence)
        self._fence = max(self._fence, fence)

    def gives_way(self, now: float) -> bool:
        """Whether it may end for another session now, as its opener allowed."""
        if self._gives_way is None or self.opened is None:
            return False
        left_alone = now - (self.lease_until - self._lease)
        return left_alone >= self._gives_way and not any(self.ledger.in_flight())

    @property
    def entries(self) -> Iterable[OpenTool]:
        """All tools, including those that only give others."""
        return tuple(self._entries)

    async def open_tools(
        self, tools: Iterable[tuple[Tool, Descriptor]], parent: OpenSession | None = None
    ) -> Opened:
        """Makes the tools' states, one after the other: new ones, or forks of the states of
        `parent`, which has the same tools. Raises what they raise; `close_tools` then closes those
        that were made."""
        began = time.perf_counter()
        states = {} if parent is None else {one.tool.name: one.state for one in parent.entries}
        for tool, descriptor in tools:
            if parent is not None and type(tool).fork is not Tool.fork:
                await self._make_state(tool, descriptor, tool.fork, states[tool.name])
            else:
                await self._open_tool(tool, descriptor)
        for entry in tuple(self._entries):
            await self.add_tools_of(entry)
        self.descriptors = tuple(entry.descriptor for entry in self.tools.values())
        self.opened = Opened(
            session_id=self.info.session_id,
            tools=self.descriptors,
            isolation=levels(entry.tool for entry in self._entries),
            startup=time.perf_counter() - began,
        )
        return self.opened

    async def add_tools_of(self, entry: OpenTool) -> tuple[Descriptor, ...]:
        """Opens the tools that a tool gives to this session and that it does not have; returns
        them. Raises ToolNameTaken if another tool has such a name."""
        if not entry.gives_tools:
            return ()
        came = []
        async with self._adding:
            for tool in entry.tool.session_tools(entry.state):
                known = self.tools.get(tool.name)
                if known is not None and known.tool is tool:
                    continue
                if tool.name in self._names:
                    raise ToolNameTaken(f"{entry.tool.name} gives a second tool {tool.name!r}")
                descriptor = tool.describe()
                await self._open_tool(tool, descriptor)
                self._names.add(tool.name)
                came.append(descriptor)
        if came and self.opened is not None:
            self.descriptors += tuple(came)
            self.opened = replace(self.opened, tools=self.descriptors)
        return tuple(came)

    async def _open_tool(self, tool: Tool, descriptor: Descriptor) -> None:
        if type(tool).open is Tool.open:
            self._enter(tool, descriptor, None)
        else:
            await self._make_state(tool, descriptor, tool.open)

    async def _make_state(
        self, tool: Tool, descriptor: Descriptor, method: Callable[..., object], *given: State
    ) -> None:
        state = await run_method(
            method, *given, self.info, unwanted=lambda late: self._close_late(tool, late)
        )
        self._enter(tool, descriptor, state)

    def _enter(self, tool: Tool, descriptor: Descriptor, state: State) -> None:
        entry = OpenTool(tool, descriptor, state)
        self._entries.append(entry)
        if tool.callable:
            self.tools[tool.name] = entry

    async def close_tools(self) -> None:
        """Closes every state, whatever each of them does."""
        for entry in self._entries:
            await self._close(entry.tool, entry.state)

    async def _close(self, tool: Tool, state: State) -> None:
        if type(tool).close is Tool.close:
            return
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await run_method(tool.close, state)
        except Exception:
            log.exception("close failed", tool=tool.name, session=self.info.session_id)

    def _close_late(self, tool: Tool, state: State) -> None:
        """Closes a state that a thread made after its opening was given up."""
        closing = asyncio.create_task(self._close(tool, state))
        _LATE.add(closing)
        closing.add_done_callback(_LATE.discard)


def levels(tools: Iterable[Tool]) -> str:
    """Levels of isolation in force; "" if no tool runs foreign code."""
    return ",".join(sorted({tool.isolation for tool in tools} - {""}))


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
