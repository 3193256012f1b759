"""Sends the requests of one history to a service, and returns the answers as plain values.

Invariants
- Each player has its own names, so histories share no sessions.
- The names of one player are almost the same, so a service that confuses them is found.
- A refusal without a reason of the contract is an error: Refusal.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, TypeVar

from toolsvc.check.client import (
    CheckClient,
    CheckSession,
    changed,
    error_kind,
    find_number,
    text_of,
)
from toolsvc.check.connection import Refusal, ask
from toolsvc.check.model.types import (
    OWNERS,
    SLOTS,
    Change,
    Intent,
    ModelCall,
    ModelRefused,
    ModelResult,
    ModelRunning,
    Traits,
)
from toolsvc.check.names import near_misses
from toolsvc.check.probe import Kind
from toolsvc.check.subject import Subject
from toolwright import wire
from toolwright.tool.v1 import tool_pb2 as pb

SLEEP_SECONDS = 15.0
"""Length of a sleeping call. CancelCall or the end of its session stops it long before."""
BRIEF = 0.05
"""Queue limit of a late call, and wait of a repeated one, in seconds."""
UNREADABLE = "nothing that a tool could read"
Value = TypeVar("Value")

_KINDS = {
    Intent.EFFECT: Kind.EFFECT,
    Intent.READ: Kind.READ,
    Intent.ECHO: Kind.ECHO,
    Intent.FAIL: Kind.FAIL,
    Intent.SLEEP: Kind.SLEEP,
}


def traits_of(subject: Subject) -> Traits:
    """What the model knows about a tool."""
    descriptor = subject.descriptor
    intents = {Intent.ANY, *(one for one, kind in _KINDS.items() if kind in subject.probe)}
    if not {Intent.EFFECT, Intent.READ} <= intents:
        intents -= {Intent.EFFECT, Intent.READ}
    if not descriptor.capabilities.cancel:
        intents.discard(Intent.SLEEP)
    if descriptor.action_format.WhichOneof("format") != "raw":
        intents.add(Intent.UNREADABLE)
    return Traits(
        intents=frozenset(intents),
        parallel=descriptor.parallel_calls,
        forks=descriptor.capabilities.fork,
        replays=descriptor.capabilities.fork_replays,
    )


async def answer_of(asking: Awaitable[Value]) -> Value | ModelRefused:
    """The answer, or the refusal with its reason."""
    try:
        return await asking
    except Refusal as refusal:
        if not refusal.reason:
            raise
        return ModelRefused(refusal.reason)


class Player:
    def __init__(
        self, client: CheckClient, subjects: Sequence[Subject], turn: Callable[[ModelCall], int]
    ) -> None:
        """`turn`: the turn of a new call."""
        self._client = client
        self._subjects = subjects
        self._turn = turn
        name = client.opening(*subjects).session_id
        draw = random.Random(name)
        self._ids = draw.sample(near_misses(name), SLOTS)
        self._owners = draw.sample(near_misses(name), OWNERS)
        self._sessions: dict[int, CheckSession] = {}
        """The newest session of each slot, open or closed."""
        self._requests: dict[tuple[int, int], pb.CallToolRequest] = {}
        self._labels: dict[str, int] = {}

    async def open(self, slot: int, owner: int, task: int) -> bool:
        request = self._opening(slot, owner, task)
        return self._entered(slot, request, await self._client.send_opening(request))

    async def fork(self, slot: int, child: int) -> bool:
        parent = self._session(slot)
        request = self._opening(child, self._owners.index(parent.request.owner))
        return self._entered(child, request, await self._client.send_fork(parent, request))

    async def call(self, call: ModelCall) -> ModelResult:
        return await self._result(call.slot, self._request(call))

    async def sleep(self, call: ModelCall) -> ModelRunning:
        await self._session(call.slot).begin(self._request(call))
        return ModelRunning()

    async def come_late(self, call: ModelCall) -> ModelResult:
        """A call with a short queue limit."""
        request = self._request(call)
        request.queue_limit.CopyFrom(wire.duration(self._client.seconds(BRIEF)))
        return await self._result(call.slot, request)

    async def burst(self, calls: Sequence[ModelCall]) -> list[ModelResult | ModelRefused]:
        requests = {call: self._request(call) for call in calls}
        asking = (answer_of(self._result(call.slot, requests[call])) for call in calls)
        return list(await asyncio.gather(*asking))

    async def repeat(self, slot: int, label: int, change: Change) -> ModelRunning | ModelResult:
        request = self._requests[slot, label]
        changes: dict[Change, dict[str, Any]] = {
            Change.NONE: {},
            Change.LIMITS: {"queue_limit": wire.duration(7), "run_limit": wire.duration(8)},
            Change.ACTION: {"action": request.action + " "},
            Change.TOOL: {"tool": request.tool + "-of-another-name"},
            Change.TURN: {"turn": request.turn + 1},
            Change.LAST: {"last_step": not request.last_step},
            Change.METADATA: {"metadata": wire.struct({"another": "request"})},
        }
        wait = wire.duration(self._client.seconds(BRIEF))
        request = changed(request, wait=wait, **changes[change])
        answer = await self._session(slot).send(request)
        return ModelRunning() if answer.HasField("running") else _value(answer.result)

    async def cancel(self, slot: int, label: int) -> tuple[bool, ModelResult | ModelRefused | None]:
        """Whether CancelCall stopped the call, and if so the call's result."""
        request = self._requests.get((slot, label))
        call_id = "no-such-call" if request is None else request.call_id
        stopped = await self._session(slot).cancel(call_id)
        if not stopped or request is None:
            return stopped, None
        return stopped, await answer_of(self._result(slot, request))

    async def renew(
        self, owner: int, believed: Collection[int]
    ) -> tuple[frozenset[int], frozenset[int]]:
        """Slots that are held, slots that are lost."""
        request = pb.RenewLeasesRequest(
            owner=self._owners[owner],
            lease=wire.duration(self._client.seconds(60)),
            session_ids=[self._ids[slot] for slot in believed],
        )
        leases: pb.RenewLeasesResponse = await ask(self._client.stub.RenewLeases, request)
        return self._slots(leases.held), self._slots(leases.lost)

    async def look(self, slot: int) -> tuple[int, ...]:
        """Labels of the calls that GetSession lists."""
        session = self._session(slot)
        request = pb.GetSessionRequest(session_id=session.id)
        found: pb.GetSessionResponse = await ask(session.stub.GetSession, request)
        return tuple(self._labels.get(call_id, -1) for call_id in found.call_ids)

    async def close(self, slot: int) -> bool:
        return await self._session(slot).close()

    async def list(self) -> bytes:
        listed = await ask(self._client.stub.ListTools, pb.ListToolsRequest())
        return bytes(listed.SerializeToString(deterministic=True))

    async def end(self) -> None:
        """Closes all sessions. The client closes those that remain."""
        for session in self._sessions.values():
            try:
                await session.close()
            except Refusal:
                continue

    def _opening(self, slot: int, owner: int, task: int = 0) -> pb.OpenSessionRequest:
        request = self._client.opening(
            *self._subjects, session_id=self._ids[slot], owner=self._owners[owner]
        )
        if task:
            request.metadata.MergeFrom(wire.struct({"task": task}))
        return request

    def _session(self, slot: int) -> CheckSession:
        """The slot's newest session, or one that was never opened."""
        if slot not in self._sessions:
            nowhere = pb.OpenSessionResponse()
            return CheckSession(self._client, self._subjects[0], self._opening(slot, 0), nowhere)
        return self._sessions[slot]

    def _entered(
        self, slot: int, request: pb.OpenSessionRequest, opened: pb.OpenSessionResponse
    ) -> bool:
        self._sessions[slot] = CheckSession(self._client, self._subjects[0], request, opened)
        return opened.session_id == request.session_id

    def _request(self, call: ModelCall) -> pb.CallToolRequest:
        subject = self._subjects[call.tool]
        action, tool = UNREADABLE, subject.name
        if call.intent is not Intent.UNREADABLE:
            seconds = self._client.seconds(SLEEP_SECONDS)
            action = subject.action(_KINDS.get(call.intent), text=call.word, seconds=seconds)
        if call.intent is Intent.UNKNOWN:
            tool = "no-such-tool"
        request = self._session(call.slot).calling(
            call_id=_call_id(call.label), tool=tool, action=action, turn=self._turn(call)
        )
        self._requests[call.slot, call.label] = request
        self._labels[request.call_id] = call.label
        return request

    def _slots(self, ids: Sequence[str]) -> frozenset[int]:
        return frozenset(self._ids.index(one) if one in self._ids else -1 for one in ids)

    async def _result(self, slot: int, request: pb.CallToolRequest) -> ModelResult:
        return _value(await self._session(slot).result(request))


def _call_id(label: int) -> str:
    family, one = divmod(label, len(near_misses("")))
    return near_misses(f"{family}/0")[one]


def _value(result: pb.CallResult) -> ModelResult:
    text = text_of(result)
    return ModelResult(
        record=result.SerializeToString(deterministic=True),
        valid=result.valid,
        error=error_kind(result) or ("?" if result.HasField("error") else ""),
        lost=result.error.session_lost,
        text=text,
        number=find_number(text),
    )
