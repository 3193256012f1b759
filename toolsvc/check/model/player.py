"""Plays a history against a service, and says step by step what was seen.

Invariants
- A player's names are its own: sessions of one history know nothing of another's.
- Names of a history are almost the same, so that a service which confuses them is seen.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence

from toolsvc.check.client import CheckClient, CheckSession, error_kind, find_number, text_of
from toolsvc.check.connection import Refusal, ask
from toolsvc.check.model.model import Model, Traits, word_of
from toolsvc.check.model.steps import (
    OWNERS,
    SLOTS,
    Again,
    Burst,
    Call,
    Cancel,
    Cancelled,
    Change,
    Close,
    Closed,
    Deed,
    Fork,
    Late,
    Leases,
    List,
    Listed,
    Look,
    Open,
    Opened,
    Refused,
    Renew,
    Result,
    Results,
    Running,
    Seen,
    Sleep,
    Step,
    Told,
)
from toolsvc.check.names import near_misses
from toolsvc.check.probe import Kind
from toolsvc.check.subject import Subject
from toolsvc.check.types import CheckFailed
from toolwright import wire
from toolwright.tool.v1 import tool_pb2 as pb

SLEEP_SECONDS = 15.0
"""Of a call that is stopped by CancelCall or its session's end, long before."""
BRIEF = 0.05
"""A queue limit that passes, seconds."""
UNREADABLE = "nothing that a tool could read"

_KINDS = {
    Deed.EFFECT: Kind.EFFECT,
    Deed.READ: Kind.READ,
    Deed.ECHO: Kind.ECHO,
    Deed.FAIL: Kind.FAIL,
}


def traits_of(subject: Subject) -> Traits:
    """What the model has to know of a tool."""
    probe, descriptor = subject.probe, subject.descriptor
    deeds = {Deed.ANY, *(deed for deed, kind in _KINDS.items() if kind in probe)}
    if not {Deed.EFFECT, Deed.READ} <= deeds:
        deeds -= {Deed.EFFECT, Deed.READ}
    if descriptor.action_format.WhichOneof("format") != "raw":
        deeds.add(Deed.UNREADABLE)
    return Traits(
        deeds=frozenset(deeds),
        parallel=descriptor.parallel_calls,
        sleeps=Kind.SLEEP in probe and descriptor.capabilities.cancel,
        forks=descriptor.capabilities.fork,
        replays=descriptor.capabilities.fork_replays,
    )


async def play(
    client: CheckClient,
    subjects: Sequence[Subject],
    steps_of: Callable[[Model], Iterable[Step]],
) -> None:
    """Plays a history, or what of it makes sense; `steps_of` may look at the model as it goes.
    Broken at the first step that is not as the contract says."""
    model = Model([traits_of(subject) for subject in subjects])
    player = Player(client, subjects)
    done: list[Step] = []
    try:
        for step in steps_of(model):
            if model.allows(step):
                done.append(step)
                model.follow(step, await player.make(step, model))
    except (CheckFailed, Refusal) as error:
        raise Broken(done, str(error)) from error
    finally:
        await player.close()


class Broken(Exception):
    """A history whose last step is not as the contract says."""

    def __init__(self, steps: list[Step], seen: str) -> None:
        super().__init__(seen)
        self.steps = steps
        self.seen = seen


class Player:
    def __init__(self, client: CheckClient, subjects: Sequence[Subject]) -> None:
        self._client = client
        self._subjects = subjects
        opening = client.opening(*subjects)
        draw = random.Random(opening.session_id)
        self._ids = draw.sample(near_misses(opening.session_id), SLOTS)
        self._owners = draw.sample(near_misses(opening.session_id), OWNERS)
        self._sessions: dict[int, CheckSession] = {}
        """The newest of each slot, open or not."""
        self._requests: dict[tuple[int, int], pb.CallToolRequest] = {}
        self._own_labels: dict[str, int] = {}

    async def make(self, step: Step, model: Model) -> Seen:
        """What the service answers to a step that makes sense."""
        try:
            return await self._make(step, model)
        except Refusal as refusal:
            if not refusal.reason:
                raise
            return Refused(refusal.reason)

    async def close(self) -> None:
        for session in self._sessions.values():
            try:
                await session.close()
            except Refusal:
                continue  # It is the client's last word too, and a check's finding elsewhere.

    async def _make(self, step: Step, model: Model) -> Seen:
        match step:
            case Open(slot, owner, task):
                return await self._open(slot, owner, task)
            case Call(slot):
                return await self._result(slot, self._request(step, model))
            case Late(slot, label, tool):
                late = self._request(Call(slot, label, Deed.ANY, tool), model)
                late.queue_limit.CopyFrom(wire.duration(self._client.seconds(BRIEF)))
                return await self._result(slot, late)
            case Sleep(slot, label, tool):
                request = self._request(Call(slot, label, Deed.ANY, tool), model)
                request.action = self._subjects[tool].action(
                    Kind.SLEEP, seconds=self._client.seconds(SLEEP_SECONDS)
                )
                await self._session(slot).begin(request)
                return Running()
            case Again():
                return await self._again(step)
            case Burst(calls):
                requests = {call: self._request(call, model) for call in calls}
                seen = (self._answer(call.slot, requests[call]) for call in calls)
                return Results(tuple(await asyncio.gather(*seen)))
            case Cancel(slot, label):
                return await self._cancel(slot, label)
            case Fork(slot, child):
                return await self._fork(slot, child)
            case Renew(owner, believed):
                return await self._renew(owner, believed)
            case Look(slot):
                return await self._look(slot)
            case Close(slot):
                return Closed(await self._session(slot).close())
            case List():
                listed = await ask(self._client.stub.ListTools, pb.ListToolsRequest())
                return Listed(listed.SerializeToString(deterministic=True))

    def _opening(self, slot: int, owner: int, task: int = 0) -> pb.OpenSessionRequest:
        request = self._client.opening(
            *self._subjects, session_id=self._ids[slot], owner=self._owners[owner]
        )
        if task:
            request.metadata.MergeFrom(wire.struct({"task": task}))
        return request

    def _session(self, slot: int) -> CheckSession:
        """The newest of the slot, or one that was never opened."""
        if slot not in self._sessions:
            nowhere = pb.OpenSessionResponse()
            return CheckSession(self._client, self._subjects[0], self._opening(slot, 0), nowhere)
        return self._sessions[slot]

    async def _open(self, slot: int, owner: int, task: int) -> Seen:
        request = self._opening(slot, owner, task)
        return self._entered(slot, request, await self._client.send_opening(request))

    async def _fork(self, slot: int, child: int) -> Seen:
        parent = self._session(slot)
        request = self._opening(child, self._owners.index(parent.request.owner))
        return self._entered(child, request, await self._client.send_fork(parent, request))

    def _entered(
        self, slot: int, request: pb.OpenSessionRequest, opened: pb.OpenSessionResponse
    ) -> Seen:
        self._sessions[slot] = CheckSession(self._client, self._subjects[0], request, opened)
        return Opened(same=opened.session_id == request.session_id)

    def _request(self, call: Call, model: Model) -> pb.CallToolRequest:
        """Of a new call."""
        session, subject = self._session(call.slot), self._subjects[call.tool]
        tool = subject.name
        if call.deed is Deed.UNREADABLE:
            action = UNREADABLE
        elif call.deed is Deed.UNKNOWN:
            tool, action = "no-such-tool", subject.action()
        else:
            action = subject.action(_KINDS.get(call.deed), text=word_of(call))
        request = session.calling(
            call_id=_call_id(call.label),
            tool=tool,
            action=action,
            turn=model.turn(call.slot, call.ahead),
        )
        self._requests[call.slot, call.label] = request
        self._own_labels[request.call_id] = call.label
        return request

    async def _again(self, step: Again) -> Seen:
        request = pb.CallToolRequest()
        request.CopyFrom(self._requests[step.slot, step.label])
        match step.change:
            case Change.LIMITS:
                request.queue_limit.CopyFrom(wire.duration(7))
                request.run_limit.CopyFrom(wire.duration(8))
            case Change.ACTION:
                request.action += " "
            case Change.TOOL:
                request.tool += "-of-another-name"
            case Change.TURN:
                request.turn += 1
            case Change.LAST:
                request.last_step = not request.last_step
            case Change.METADATA:
                request.metadata.MergeFrom(wire.struct({"another": "request"}))
        request.wait.CopyFrom(wire.duration(self._client.seconds(BRIEF)))
        answer = await self._session(step.slot).send(request)
        return Running() if answer.HasField("running") else _seen(answer.result)

    async def _cancel(self, slot: int, label: int) -> Seen:
        session = self._session(slot)
        request = self._requests.get((slot, label))
        call_id = "no-such-call" if request is None else request.call_id
        stopped = await session.cancel(call_id)
        if not stopped or request is None:
            return Cancelled(stopped)
        return Cancelled(stopped, await self._answer(slot, request))

    async def _renew(self, owner: int, believed: Sequence[int]) -> Seen:
        request = pb.RenewLeasesRequest(
            owner=self._owners[owner],
            lease=wire.duration(self._client.seconds(60)),
            session_ids=[self._ids[slot] for slot in believed],
        )
        leases: pb.RenewLeasesResponse = await ask(self._client.stub.RenewLeases, request)
        return Leases(self._slots(leases.held), self._slots(leases.lost))

    def _slots(self, ids: Sequence[str]) -> frozenset[int]:
        return frozenset(self._ids.index(one) if one in self._ids else -1 for one in ids)

    async def _look(self, slot: int) -> Seen:
        session = self._session(slot)
        told: pb.GetSessionResponse = await ask(
            session.stub.GetSession, pb.GetSessionRequest(session_id=session.id)
        )
        return Told(tuple(self._own_labels.get(one, -1) for one in told.call_ids))

    async def _result(self, slot: int, request: pb.CallToolRequest) -> Result:
        return _seen(await self._session(slot).result(request))

    async def _answer(self, slot: int, request: pb.CallToolRequest) -> Result | Refused:
        try:
            return await self._result(slot, request)
        except Refusal as refusal:
            return Refused(refusal.reason)


def _call_id(label: int) -> str:
    family, one = divmod(label, len(near_misses("")))
    return near_misses(f"{family}/0")[one]


def _seen(result: pb.CallResult) -> Result:
    text = text_of(result)
    return Result(
        record=result.SerializeToString(deterministic=True),
        valid=result.valid,
        error=error_kind(result) or ("?" if result.HasField("error") else ""),
        lost=result.error.session_lost,
        text=text,
        number=find_number(text),
    )
