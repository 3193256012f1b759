"""VerlTool's trajectories as sessions of a host, and its unnumbered requests as numbered calls.

Invariants
- A trajectory has one session, opened with its first action; it ends with `finish`, or with its
  lease, which every action renews. An action after `finish` begins a new one, as there.
- Where the host is full, a trajectory of which nobody has asked anything for `GIVE_WAY_SECONDS`
  ends for another session: trainers that die finish nothing.
- A trajectory is its caller's alone: another caller's of the same name is another one.
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
from typing import Any

from toolsvc.host.host import Host
from toolsvc.types import CallRequest, OpenRequest, Recorded
from toolwright.rpc.auth import caller
from toolwright.rpc.options import LONGEST_WAIT

LEASE_SECONDS = 3600.0
"""Twice the longest trajectory of VerlTool's tasks (30 minutes of software engineering)."""
GIVE_WAY_SECONDS = 300.0
"""Longer than a policy writes at one turn, on most samplers; while there is room nobody asks."""
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


@dataclass(slots=True)
class Turn:
    """An action and the call that it became."""

    action: Action
    request: CallRequest
    delivered: bool = False
    """Its answer reached the caller, as far as anybody here can tell."""


@dataclass(slots=True)
class _Trajectory:
    session: OpenRequest
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

    async def act(self, trajectory_id: str, action: Action) -> tuple[Turn, Recorded]:
        """What came of the action. Refused where it could not run."""
        name = caller(), trajectory_id
        trajectory = self._known.get(name) or self._begin(name, action)
        async with trajectory.lock:
            turn = trajectory.turn = _turn(trajectory, action)
            await self._host.open(trajectory.session)
            while True:
                answer = await self._host.call(turn.request)
                if isinstance(answer, Recorded):
                    return turn, answer

    async def finish(self, trajectory_id: str) -> None:
        """Ends the trajectory's session and every call in it; nothing where there is none."""
        trajectory = self._known.pop((caller(), trajectory_id), None)
        if trajectory is not None:
            await self._host.close(trajectory.session.session_id, "its trajectory was finished")

    def _begin(self, name: tuple[str, str], action: Action) -> _Trajectory:
        self._sweep()
        session_id = f"verltool-{uuid.uuid4().hex}"
        session = OpenRequest(
            session_id=session_id,
            owner="verltool",
            lease=LEASE_SECONDS,
            tools=(),
            metadata=action.extra,
            queue_limit=QUEUE_SECONDS,
            digest=session_id.encode(),
            gives_way=GIVE_WAY_SECONDS,
        )
        trajectory = self._known[name] = _Trajectory(session)
        return trajectory

    def _sweep(self) -> None:
        """Forgets trajectories whose session has ended by its lease."""
        if len(self._known) < self._sweep_at:
            return
        live = set(self._host.session_ids)
        self._known = {
            name: one
            for name, one in self._known.items()
            if one.lock.locked() or one.session.session_id in live
        }
        self._sweep_at = max(_SWEEP_AT, 2 * len(self._known))


def _turn(trajectory: _Trajectory, action: Action) -> Turn:
    last = trajectory.turn
    number = action.turn
    if number is None:
        if last is not None and action == last.action and not last.delivered:
            return last
        number = 0 if last is None else last.request.turn + 1
    # Of a number that came before the session's ledger tells whether the action did, too.
    return Turn(action, _request(trajectory.session.session_id, action, number))


def _request(session_id: str, action: Action, turn: int) -> CallRequest:
    call_id = f"{session_id}/{turn}"
    left = action.extra.get("turns_left")
    return CallRequest(
        session_id=session_id,
        call_id=call_id,
        tool="",
        action=action.text,
        arguments=None,
        turn=turn,
        turns_left=left if isinstance(left, int) else 0,
        last_step=action.last_step,
        queue_limit=QUEUE_SECONDS,
        run_limit=None,
        wait=LONGEST_WAIT,
        metadata=action.extra,
        digest=repr(action).encode(),
    )
