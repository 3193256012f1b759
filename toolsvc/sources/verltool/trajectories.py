"""VerlTool's trajectories as sessions of a host, and its unnumbered requests as numbered calls.

Invariants
- A trajectory has a session for each registered tool, and one for all other tools together, for
  these may share what they keep. Each is opened with the first action that calls a tool of it, so
  that no action fails for what another tool would have wanted. They end with `finish`, or with
  their lease, which every action of theirs renews. An action after `finish` begins a new
  trajectory, as there.
- If the host is full, a session without a request for `GIVE_WAY_SECONDS` ends in favour of a new
  one: trainers that die finish nothing.
- A trajectory belongs to its caller: two callers may use the same name for different trajectories.
- Actions of one trajectory run one after the other, in the order of asking.
- An action that comes again before its answer was delivered is a retry: it gets the answer of the
  first, and nothing runs twice. Once delivered, the same words are a new action. Requests of
  VerlTool have no turn number, so nothing else tells the two apart; a caller that sends one
  (`turn`) is believed.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from toolsvc.errors import Refused
from toolsvc.host.host import Host
from toolsvc.plugin.reading import tool_of_action
from toolsvc.plugin.tool import Tool
from toolsvc.types import CallRequest, Descriptor, OpenRequest, Recorded
from toolwright.rpc.auth import caller
from toolwright.rpc.options import LONGEST_WAIT

LEASE_SECONDS = 3600.0
"""Twice the longest trajectory of VerlTool's tasks (30 minutes of software engineering)."""
GIVE_WAY_SECONDS = 300.0
"""Longer than a policy writes at one turn, on most samplers. It counts only while there is no
room."""
QUEUE_SECONDS = 30.0
_SWEEP_AT = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One item of a request."""

    text: str
    extra: Mapping[str, Any]
    """The task's metadata, sent anew with every action."""
    last_step: bool
    turn: int | None = None
    """From 0, where the caller numbers them."""


class ToolCall(NamedTuple):
    """The call of an action that the caller has parsed already."""

    tool: str
    arguments: Mapping[str, Any]


@dataclass(slots=True)
class Turn:
    """An action and the call that it became."""

    action: Action
    session: OpenRequest
    request: CallRequest
    delivered: bool = False
    """Its answer reached the caller, as far as the service knows."""


@dataclass(slots=True)
class _Trajectory:
    sessions: dict[str, OpenRequest] = field(default_factory=dict)
    """By the registered tool that it is for; "" = all other tools."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    turn: Turn | None = None


class Trajectories:
    """All trajectories of one host that are driven from outside of gRPC."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._known: dict[tuple[str, str], _Trajectory] = {}
        """By caller and name."""
        self._sweep_at = _SWEEP_AT

    def __len__(self) -> int:
        return len(self._known)

    async def act(
        self, trajectory_id: str, action: Action, call: ToolCall | None = None
    ) -> tuple[Turn, Recorded]:
        """Outcome of the action. Raises InvalidAction if it calls no tool, Refused if it could not
        run."""
        name = caller(), trajectory_id
        trajectory = self._known.get(name) or self._begin(name)
        async with trajectory.lock:
            turn = trajectory.turn = await self._turn(trajectory, action, call)
            await self._host.open(turn.session)
            while True:
                answer = await self._host.call(turn.request)
                if isinstance(answer, Recorded):
                    return turn, answer

    async def finish(self, trajectory_id: str) -> None:
        """Ends the trajectory's sessions and every call in them; nothing for an unknown
        trajectory."""
        trajectory = self._known.pop((caller(), trajectory_id), None)
        if trajectory is not None:
            for session in trajectory.sessions.values():
                await self._host.close(session.session_id, "its trajectory was finished")

    def _begin(self, name: tuple[str, str]) -> _Trajectory:
        self._sweep()
        trajectory = self._known[name] = _Trajectory()
        return trajectory

    async def _turn(self, trajectory: _Trajectory, action: Action, call: ToolCall | None) -> Turn:
        last = trajectory.turn
        number = action.turn
        if number is None:
            if last is not None and action == last.action and not last.delivered:
                return last
            number = 0 if last is None else last.request.turn + 1
        session = await self._session(trajectory, action, call)
        # For a number that came before, the session's ledger knows whether the action ran.
        return Turn(action, session, _request(session.session_id, action, number, call))

    async def _session(
        self, trajectory: _Trajectory, action: Action, call: ToolCall | None
    ) -> OpenRequest:
        """Session of the tool that the action calls. Raises InvalidAction."""
        served = {tool.name: tool for tool in self._host.tools}
        if len(served) == 1:
            (tool,) = served.values()
            return self._of_group(trajectory, action, _group(tool))
        if not all(tool.callable for tool in served.values()):
            await self._host.open(self._of_group(trajectory, action, ""))  # for what it gives
        if call is not None:
            return self._of_group(trajectory, action, _group(served[call.tool]))
        own = [
            (descriptor, group)
            for group, session in trajectory.sessions.items()
            for descriptor in self._tools_in(session)
            if descriptor.name not in served
        ]
        name = tool_of_action(
            action.text,
            [*self._host.list_tools(), *(descriptor for descriptor, _ in own)],
            lambda name: name not in served or served[name].accepts(action.text),
        )
        groups = {descriptor.name: group for descriptor, group in own}
        group = _group(served[name]) if name in served else groups[name]
        return self._of_group(trajectory, action, group)

    def _tools_in(self, session: OpenRequest) -> tuple[Descriptor, ...]:
        """Tools of the session; empty if it is not open or lost, which a call of its tools
        reports."""
        try:
            return self._host.look(session.session_id).tools
        except Refused:
            return ()

    def _of_group(self, trajectory: _Trajectory, action: Action, group: str) -> OpenRequest:
        session = trajectory.sessions.get(group)
        if session is None:
            session_id = f"verltool-{uuid.uuid4().hex}"
            tools = [group] if group else [one.name for one in self._host.tools if not _group(one)]
            session = trajectory.sessions[group] = OpenRequest(
                session_id=session_id,
                owner="verltool",
                lease=LEASE_SECONDS,
                tools=tuple(tools),
                metadata=action.extra,
                queue_limit=QUEUE_SECONDS,
                digest=session_id.encode(),
                gives_way=GIVE_WAY_SECONDS,
            )
        return session

    def _sweep(self) -> None:
        """Forgets trajectories whose session has ended by its lease."""
        if len(self._known) < self._sweep_at:
            return
        live = set(self._host.session_ids)
        self._known = {
            name: one
            for name, one in self._known.items()
            if one.lock.locked()
            or any(session.session_id in live for session in one.sessions.values())
        }
        self._sweep_at = max(_SWEEP_AT, 2 * len(self._known))


def _group(tool: Tool) -> str:
    return tool.name if tool.registered else ""


def _request(session_id: str, action: Action, turn: int, call: ToolCall | None) -> CallRequest:
    call_id = f"{session_id}/{turn}"
    left = action.extra.get("turns_left")
    return CallRequest(
        session_id=session_id,
        call_id=call_id,
        tool="" if call is None else call.tool,
        action=action.text,
        arguments=None if call is None else call.arguments,
        turn=turn,
        turns_left=left if isinstance(left, int) else 0,
        last_step=action.last_step,
        queue_limit=QUEUE_SECONDS,
        run_limit=None,
        wait=LONGEST_WAIT,
        metadata=action.extra,
        digest=repr(action).encode(),
    )
