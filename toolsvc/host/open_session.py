"""What the host keeps of an open session: its tools' states, its ledger, its lease.

Invariants
- A session's tools only become more: those that were asked for, then those that these give to it
  alone, at its opening and after their calls.
- Every state that was made is closed with the session, also that of a tool which came later.
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
from toolsvc.host.turnstile import Turnstile
from toolsvc.plugin.alarm import Alarm
from toolsvc.plugin.cancellation import Cancellation
from toolsvc.plugin.executors import Executor, LiveState, run_method
from toolsvc.plugin.tool import State, Tool
from toolsvc.types import Descriptor, Media, Opened, OpenRequest, Recorded, Running, SessionInfo
from toolwright.rpc.auth import caller

CLOSE_SECONDS = 10.0
"""For one tool to close one session's state; what takes longer is left to itself."""

log = structlog.get_logger(__name__)

_LATE: set[asyncio.Task[None]] = set()
"""Held, for the event loop does not."""


class ToolNameTaken(Exception):
    """A fault of the tool that gives it: it can see which names the session has."""


_ALWAYS_LIVE = LiveState()


class OpenTool:
    """A tool as one session has it."""

    __slots__ = ("descriptor", "executor", "gives_tools", "live", "state", "tool", "turnstile")

    def __init__(self, tool: Tool, descriptor: Descriptor, state: State) -> None:
        self.tool = tool
        self.descriptor = descriptor
        self.state = state
        self.live = state if isinstance(state, LiveState) else _ALWAYS_LIVE
        self.executor: Executor = tool.executor(tool)
        self.turnstile = Turnstile(tool.parallel_calls)
        self.gives_tools = type(tool).session_tools is not Tool.session_tools


class RunningCall:
    """A call that was begun, and what came of it; the ledger holds it until it is forgotten."""

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
        """Runs it; None where the answer needed no waiting."""
        self.outcome: Recorded | Refused | None = None
        self._waiting: dict[Callable[[], object], Alarm] = {}

    def end(self, outcome: Recorded | Refused) -> None:
        """Once; tells all who wait."""
        self.outcome = outcome
        waiting, self._waiting = self._waiting, {}
        for then, alarm in waiting.items():
            alarm.cancel()
            then()

    def tell(self, seconds: float, then: Callable[[], object]) -> None:
        """Calls `then` once: when the call has ended, or after so long if it has not by then."""
        self._waiting[then] = Alarm(seconds, partial(self._late, then))

    def forget(self, then: Callable[[], object]) -> None:
        """`then` is not called any more. Does nothing if it was called."""
        alarm = self._waiting.pop(then, None)
        if alarm is not None:
            alarm.cancel()

    async def wait(self, seconds: float) -> None:
        """Until the call has ended, for so long at most. Cancelling the wait leaves it running.

        By hand, because asyncio.wait would take longer than most calls run.
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
        """Seconds that it has waited, for its turn and for others, and that it has run. Together
        all since it was asked for."""
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
        """`wanted`: names of the served tools that it will have. `blobs`: the task's media."""
        self.asked = tuple(wanted)
        """Names of the served tools that it has; what these give to it comes on top."""
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
        """Whose it is."""
        self.lease_until = lease_until
        self._gives_way = request.gives_way
        self._lease = request.lease
        self.tools: dict[str, OpenTool] = {}
        """Those that can be called."""
        self._entries: list[OpenTool] = []
        """All, with those that only give tools."""
        self.descriptors: tuple[Descriptor, ...] = ()
        self.ledger: Ledger[RunningCall] = Ledger()
        self.opened: Opened | None = None
        self._adding = asyncio.Lock()
        """Two calls that end together would add the same tools twice."""

    @property
    def lost(self) -> str | None:
        """Why a tool's state is gone, or None."""
        for entry in self._entries:
            if entry.live.lost is not None:
                return entry.live.lost
        return None

    def gives_way(self, now: float) -> bool:
        """Whether it may end for another, as far as its opener said."""
        if self._gives_way is None or self.opened is None:
            return False
        left_alone = now - (self.lease_until - self._lease)
        return left_alone >= self._gives_way and not any(self.ledger.in_flight())

    @property
    def entries(self) -> Iterable[OpenTool]:
        """All tools, with those that only give others."""
        return tuple(self._entries)

    async def open_tools(
        self, tools: Iterable[tuple[Tool, Descriptor]], parent: OpenSession | None = None
    ) -> Opened:
        """Makes the tools' states, one after the other: new ones, or forked from those of `parent`,
        which has the same tools. Raises what they raise; `close_tools` closes those that were
        made."""
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
        """Opens what the tool gives to this session and the session does not have; returns what
        came. ToolNameTaken if another tool has such a name."""
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
        """Closes every state; one that fails to close does not keep the others."""
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
        """Of a state whose opening was given up before its thread had made it."""
        closing = asyncio.create_task(self._close(tool, state))
        _LATE.add(closing)
        closing.add_done_callback(_LATE.discard)


def levels(tools: Iterable[Tool]) -> str:
    """The levels of isolation in force, "" where no tool runs foreign code."""
    return ",".join(sorted({tool.isolation for tool in tools} - {""}))


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
