"""Tools that answer only from a cassette."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from toolsvc.errors import Reason, Refused
from toolsvc.plugin.tool import Cancellation, Tool
from toolsvc.sources.cassette.tape import Tape, described, next_key, task_key
from toolsvc.sources.remote.wire import descriptor_from_proto, result_from_proto
from toolsvc.sources.shared import Shared, StandIn
from toolsvc.types import Call, Descriptor, Result, SessionInfo
from toolwright.tool.v1 import tool_pb2 as pb


class CassettePlayer:
    """The tape, and the sessions that replay it."""

    def __init__(self, tape: Tape, where: str) -> None:
        self.tape = tape
        self.where = where
        self._opened: Counter[str] = Counter()
        self.sessions = Shared(self._begin)

    def _begin(self, session: SessionInfo) -> Played:
        """Sessions of one task take its recorded sessions in turn, in the order of opening."""
        key = task_key(session.metadata)
        takes = self.tape.takes.get(key, [[]])
        take = self._opened[key] % len(takes)
        self._opened[key] += 1
        played = Played(self, key, take)
        played.give(takes[take])
        return played


class Played:
    """One session: its position on the tape, and its own tools."""

    def __init__(self, player: CassettePlayer, key: str, take: int) -> None:
        self._player = player
        self._key = key
        self._take = take
        self._calls = 0
        self._ended: Result | None = None
        """Result that reported the loss of the session."""
        self.own: dict[str, CassetteTool] = {}

    def give(self, tools: Sequence[pb.ToolDescriptor]) -> None:
        for tool in tools:
            self.own.setdefault(tool.name, CassetteTool(self._player, descriptor_from_proto(tool)))

    def answer(self, tool: str, arguments: Mapping[str, Any]) -> Result:
        """Answer to the next call. Raises Refused, without a change of state, if it was not
        recorded. After a result that lost the session, every later call gets that result, as from
        the real tool."""
        key = next_key(self._key, tool, arguments)
        found = self._player.tape.answer(key, self._take)
        if found is None or found.result is None:
            if self._ended is not None:
                return self._ended
            raise self._missing(tool, arguments, key, cancelled=found is not None)
        self._key = key
        self._calls += 1
        self.give(found.result.new_tools)
        result = result_from_proto(found.result)
        if result.error is not None and result.error.session_lost:
            self._ended = result
        return result

    def _missing(
        self, tool: str, arguments: Mapping[str, Any], key: str, *, cancelled: bool
    ) -> Refused:
        came = self._player.tape.after.get(self._key, [])
        there = " or ".join(came[:3]) + (" ..." if came[3:] else "") or "nothing"
        why = (
            "it was cancelled when it was recorded"
            if cancelled
            else f"after the earlier calls of this session, {there} was recorded there"
        )
        return Refused(
            Reason.INVALID_REQUEST,
            f"{self._player.where} has no answer to call {self._calls}, "
            f"{described(tool, arguments)} (key {key[:16]}): {why}",
            subject=tool,
            fix="record it, or run what was recorded: the same tasks, policy and sampling",
        )


class CassetteTool(StandIn):
    """A recorded tool. All its calls come here, whether or not their actions could be read."""

    parallel_calls = True  # Answers cost nothing, and their order is that of asking.

    def __init__(self, player: CassettePlayer, descriptor: Descriptor) -> None:
        super().__init__(descriptor)
        self._player = player

    async def open(self, session: SessionInfo) -> Played:
        return self._player.sessions.of(session)

    def session_tools(self, state: Played) -> Sequence[Tool]:
        return tuple(state.own.values())

    async def run(self, state: Played, call: Call, cancellation: Cancellation) -> Result:
        return state.answer(self.name, call.arguments)


class OwnToolsOnly(CassetteTool):
    """Stands for a recording in which every tool belongs to a single session."""

    callable = False

    def __init__(self, player: CassettePlayer) -> None:
        super().__init__(player, descriptor_from_proto(pb.ToolDescriptor(name="cassette")))
