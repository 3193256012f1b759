"""Real tools whose answers are recorded.

Invariants
- A line is written once its answer is known, before the caller gets it. The first line is a
  session's.
- Calls of a session are numbered in the order in which they came. A call that was refused and comes
  again keeps its number; a call without an answer has a line that says so.
"""

from __future__ import annotations

import fcntl
import itertools
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

from toolsvc.edge.wire import descriptor_to_proto, fill_result
from toolsvc.errors import StartError
from toolsvc.host.open_session import OpenTool
from toolsvc.plugin.actions import UNREAD, InvalidAction
from toolsvc.plugin.executors import run_method
from toolsvc.plugin.reading import arguments_of
from toolsvc.plugin.results import invalid
from toolsvc.plugin.tool import Cancellation, LiveState, Tool
from toolsvc.sources.cassette.tape import call_line, header_line, session_line
from toolsvc.sources.shared import Shared, StandIn
from toolsvc.types import Call, Recorded, Result, SessionInfo
from toolwright.tool.v1 import tool_pb2 as pb


class Recorder:
    """The file of a recording, and the recorded sessions."""

    def __init__(self, path: Path, tools: Sequence[Tool]) -> None:
        self._path = path
        self._tools = [tool for tool in tools if tool.callable]
        self._file: IO[str] | None = None
        self._count = itertools.count()
        self.sessions = Shared(lambda info: RecordedSession(self, info, next(self._count)))

    def start(self) -> None:
        """Locks the file, once, and writes nothing yet: a tool that is started only to be listed
        records nothing. Raises StartError if the file is not empty, or another process records into
        it."""
        if self._file is not None:
            return
        try:
            with ExitStack() as unless_taken:
                # A lone surrogate is escaped, as JSON has it.
                file = unless_taken.enter_context(
                    self._path.open("a", encoding="utf-8", errors="backslashreplace")
                )
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # for as long as it is open
                if os.fstat(file.fileno()).st_size:
                    raise StartError(
                        f"{self._path} is there already: name another file, or remove it"
                    )
                unless_taken.pop_all()
        except BlockingIOError as error:
            raise StartError(
                f"{self._path} is being recorded: name another file "
                "(several --workers cannot record into one)"
            ) from error
        except OSError as error:
            raise StartError(f"{self._path} cannot be written: {error}") from error
        self._file = file

    def stop(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def write(self, line: str) -> None:
        if self._file is None:
            raise RuntimeError("recorded before the start")
        if self._file.tell() == 0:
            descriptors = (descriptor_to_proto(tool.describe()) for tool in self._tools)
            self._file.write(header_line(descriptors))
        self._file.write(line)
        self._file.flush()


class RecordedSession:
    """What is written of one session."""

    def __init__(self, recorder: Recorder, info: SessionInfo, number: int) -> None:
        self._recorder = recorder
        self._info = info
        self._number = number
        self._begun = False
        self._places: dict[str, int] = {}
        self.own: dict[str, RecordingTool] = {}
        """Tools that it alone has, by name."""

    def place(self, call_id: str) -> int:
        """Number of the call among those of the session."""
        self.begin()
        return self._places.setdefault(call_id, len(self._places))

    def begin(self) -> None:
        """Writes the session's first line, once: by then its first tools are known."""
        if not self._begun:
            self._begun = True
            own = (descriptor_to_proto(tool.describe()) for tool in self.own.values())
            self._recorder.write(session_line(self._number, self._info.metadata, own))

    def write(
        self, place: int, tool: str, arguments: Mapping[str, Any], result: pb.CallResult | None
    ) -> None:
        self._recorder.write(call_line(self._number, place, tool, arguments, result))


class TakenState(LiveState):
    """The state of a recorded tool, with the turnstile that its host would have for it."""

    def __init__(self, session: RecordedSession, taken: OpenTool) -> None:
        self.session = session
        self.taken = taken

    @property
    def lost(self) -> str | None:
        return self.taken.live.lost


class RecordingTool(StandIn):
    """Wraps a tool, passes every call on to it and records the answer."""

    parallel_calls = True  # So that calls come here in the order of asking; they wait here.

    def __init__(self, recorder: Recorder, tool: Tool) -> None:
        super().__init__(tool.describe())
        self._recorder = recorder
        self._tool = tool
        self.keep = tool.keep
        self.callable = tool.callable

    async def start(self) -> None:
        await self._tool.start()
        self.isolation = self._tool.isolation
        self._recorder.start()

    async def stop(self) -> None:
        await self._tool.stop()
        self._recorder.stop()

    def figures(self) -> Mapping[str, float]:
        return self._tool.figures()

    async def open(self, session: SessionInfo) -> TakenState:
        state = await run_method(self._tool.open, session)
        taken = OpenTool(self._tool, self._descriptor, state)
        return TakenState(self._recorder.sessions.of(session), taken)

    async def close(self, state: TakenState) -> None:
        state.session.begin()
        await run_method(self._tool.close, state.taken.state)

    def session_tools(self, state: TakenState) -> Sequence[Tool]:
        own = state.session.own
        for tool in self._tool.session_tools(state.taken.state):
            if tool.name not in own:
                own[tool.name] = RecordingTool(self._recorder, tool)
        return tuple(own.values())

    async def run(self, state: TakenState, call: Call, cancellation: Cancellation) -> Result:
        place = state.session.place(call.call_id)
        told: pb.CallResult | None = None
        try:
            result = await self._run(state, call, cancellation)
            if not cancellation.requested:
                told = self._told(state, result)
            return result
        finally:
            state.session.write(place, self.name, call.arguments, told)

    async def _run(self, state: TakenState, call: Call, cancellation: Cancellation) -> Result:
        try:
            given = None if UNREAD in call.arguments else call.arguments
            checked = arguments_of(self._tool, self._descriptor, call.action, given)
        except InvalidAction as error:
            return invalid(str(error))
        taken = state.taken
        await taken.turnstile.enter()
        try:
            if not taken.live.ready:
                await taken.live.prepare()
            checked_call = call._replace(arguments=checked)
            return await taken.executor.run(taken.state, checked_call, cancellation)
        finally:
            cancellation.when_idle(taken.turnstile.leave)

    def _told(self, state: TakenState, result: Result) -> pb.CallResult:
        """The result as it is written, with the tools that came by it."""
        before = set(state.session.own)
        new = [tool for tool in self.session_tools(state) if tool.name not in before]
        told = pb.CallResult()
        fill_result(
            told,
            Recorded(
                result=result,
                tool=self.name,
                queued=0.0,
                run=0.0,
                isolation="",
                new_tools=tuple(tool.describe() for tool in new),
            ),
        )
        told.ClearField("queued")
        told.ClearField("run")
        return told
