"""What a check holds in its hands: a client with an owner of its own, and its sessions.

Invariants
- Every session that a check asked for is closed at its end, however the check ended.
- Checks share nothing but channels: owner, session ids and call ids belong to one check.
- A session's calls go to the endpoint that OpenSession named.
"""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

import grpc
from google.protobuf.duration_pb2 import Duration

from toolsvc.check.connection import ANSWER_SECONDS, Connection, Refusal, ask
from toolsvc.check.probe import Kind
from toolsvc.check.subject import Subject
from toolsvc.check.types import CheckFailed, Skipped, expect
from toolwright import wire
from toolwright.common.v1 import reasons_pb2
from toolwright.rpc.errors import ServiceError
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.tool.v1 import tool_pb2_grpc

LEASE_SECONDS = 60.0
QUEUE_SECONDS = 20.0
RUN_SECONDS = 20.0
WAIT_SECONDS = 5.0


class CheckClient:
    """Async context manager. `pace` stretches every time that a check chooses."""

    def __init__(
        self, connection: Connection, subjects: Sequence[Subject], *, pace: float = 1.0
    ) -> None:
        self.connection = connection
        self.subjects = subjects
        self.owner = f"toolsvc-check/{uuid.uuid4().hex}"
        self._pace = pace
        self._asked: list[tuple[str, tool_pb2_grpc.ToolServiceAsyncStub]] = []

    async def __aenter__(self) -> CheckClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        for session_id, stub in self._asked:
            with suppress(Refusal):
                await ask(stub.CloseSession, pb.CloseSessionRequest(session_id=session_id))

    @property
    def stub(self) -> tool_pb2_grpc.ToolServiceAsyncStub:
        """At the address itself."""
        return self.connection.stub()

    def seconds(self, value: float) -> float:
        """A time that a check chooses, on this machine."""
        return value * self._pace

    async def sleep(self, value: float) -> None:
        await asyncio.sleep(self.seconds(value))

    def subject(self, *kinds: Kind, parallel: bool | None = None) -> Subject:
        """The first tool that can be brought to all of `kinds`. Skipped if there is none."""
        for subject in self.subjects:
            if all(kind in subject.probe for kind in kinds) and parallel in (
                None,
                subject.descriptor.parallel_calls,
            ):
                return subject
        wanted = ", ".join(kind.value for kind in kinds)
        which = {None: "", True: " with parallel calls", False: " without parallel calls"}[parallel]
        raise Skipped(f"no tool{which} has a probe with {wanted}" if wanted else f"no tool{which}")

    @property
    def queue_seconds(self) -> float:
        """A slow pace waits longer for a place, and no pace waits less."""
        return QUEUE_SECONDS * max(1.0, self._pace)

    def opening(self, *subjects: Subject, **fields: Any) -> pb.OpenSessionRequest:
        """A request for a session, under an id of its own."""
        return pb.OpenSessionRequest(
            **{
                "session_id": f"{self.owner}/{uuid.uuid4().hex}",
                "owner": self.owner,
                "lease": wire.duration(LEASE_SECONDS),
                "queue_limit": wire.duration(self.queue_seconds),
                "tools": [subject.name for subject in subjects],
                "metadata": wire.struct(
                    {
                        name: value
                        for subject in subjects or self.subjects
                        for name, value in subject.probe.metadata.items()
                    }
                ),
                **fields,
            }
        )

    async def send_opening(self, request: pb.OpenSessionRequest) -> pb.OpenSessionResponse:
        """OpenSession, seen to be closed. Refusal."""
        self._asked.append((request.session_id, self.stub))
        opened: pb.OpenSessionResponse = await ask(self.stub.OpenSession, request)
        if opened.endpoint:
            self._asked.append((request.session_id, self.connection.stub(opened.endpoint)))
        return opened

    async def send_fork(
        self, parent: CheckSession, request: pb.OpenSessionRequest
    ) -> pb.OpenSessionResponse:
        """ForkSession, seen to be closed. Refusal."""
        self._asked.append((request.session_id, parent.stub))
        answer: pb.ForkSessionResponse = await ask(
            parent.stub.ForkSession, pb.ForkSessionRequest(session_id=parent.id, open=request)
        )
        opened = answer.session
        if not opened.endpoint:
            opened.endpoint = parent.opened.endpoint
        return opened

    async def open(self, subject: Subject | None = None, **fields: Any) -> CheckSession:
        """A session whose calls go to `subject`, by default the first tool."""
        subject = subject or self.subject()
        request = self.opening(subject, **fields)
        return CheckSession(self, subject, request, await self.send_opening(request))

    async def renew(
        self, session: CheckSession, *believed: str, lease: float = LEASE_SECONDS
    ) -> pb.RenewLeasesResponse:
        """RenewLeases for this owner, where `session` is held."""
        return await ask(
            session.stub.RenewLeases,
            pb.RenewLeasesRequest(
                owner=self.owner, lease=wire.duration(lease), session_ids=believed
            ),
        )


class CheckSession:
    """An open session, and calls of one tool in it."""

    def __init__(
        self,
        client: CheckClient,
        subject: Subject,
        request: pb.OpenSessionRequest,
        opened: pb.OpenSessionResponse,
    ) -> None:
        self.client = client
        self.subject = subject
        self.request = request
        self.opened = opened
        self.id = request.session_id
        self.stub = client.connection.stub(opened.endpoint)
        self.turn = 0
        """Of the next call that names none."""

    def calling(
        self, kind: Kind | None = None, *, text: str = "", seconds: float = 0.0, **fields: Any
    ) -> pb.CallToolRequest:
        """A request for one action, under a call id of its own."""
        turn = fields.get("turn", self.turn)
        return pb.CallToolRequest(
            **{
                "session_id": self.id,
                "call_id": f"{self.id}/{turn}/{uuid.uuid4().hex}",
                "tool": self.subject.name,
                "action": self.subject.action(
                    kind, text=text, seconds=self.client.seconds(seconds)
                ),
                "turn": turn,
                "turns_left": 8,
                "queue_limit": wire.duration(self.client.queue_seconds),
                "run_limit": wire.duration(RUN_SECONDS),
                "wait": wire.duration(WAIT_SECONDS),
                **fields,
            }
        )

    async def send(
        self, request: pb.CallToolRequest, *, seconds: float = ANSWER_SECONDS
    ) -> pb.CallToolResponse:
        """One CallTool: a result, or `running`. Refusal."""
        answer: pb.CallToolResponse = await ask(self.stub.CallTool, request, seconds=seconds)
        expect(answer.WhichOneof("outcome"), "CallTool answered neither a result nor `running`")
        return answer

    async def result(self, request: pb.CallToolRequest) -> pb.CallResult:
        """The call's result; asks again while it runs. Refusal."""
        while True:
            answer = await self.send(request)
            if answer.HasField("result"):
                return answer.result

    async def call(self, kind: Kind | None = None, **fields: Any) -> pb.CallResult:
        """The result of a new call. Refusal."""
        return await self.result(self.calling(kind, **fields))

    async def begin(self, request: pb.CallToolRequest) -> None:
        """Sees the call in flight, and as far as the service tells, running. CheckFailed if it does
        not answer `running`."""
        asking = pb.CallToolRequest()
        asking.CopyFrom(request)
        asking.wait.CopyFrom(Duration())
        until = time.monotonic() + self.client.seconds(0.3)
        while True:
            answer = await self.send(asking)
            expect(answer.HasField("running"), "a sleeping call was not answered `running`")
            if answer.running.run.ToNanoseconds() > 0 or time.monotonic() > until:
                return
            await asyncio.sleep(0.01)

    async def look(self) -> pb.GetSessionResponse:
        """GetSession. Refusal; Skipped where the service has none."""
        request = pb.GetSessionRequest(session_id=self.id)
        answer: pb.GetSessionResponse = await asked_optionally(self.stub.GetSession, request)
        return answer

    async def fork(self) -> CheckSession:
        """A second session with the state of this one. Refusal."""
        request = self.client.opening(self.subject)
        opened = await self.client.send_fork(self, request)
        return CheckSession(self.client, self.subject, request, opened)

    async def cancel(self, call_id: str) -> bool:
        """CancelCall. Refusal."""
        request = pb.CancelCallRequest(session_id=self.id, call_id=call_id)
        answer: pb.CancelCallResponse = await ask(self.stub.CancelCall, request)
        return answer.cancelled

    async def close(self) -> bool:
        """CloseSession. Refusal."""
        request = pb.CloseSessionRequest(session_id=self.id)
        answer: pb.CloseSessionResponse = await ask(self.stub.CloseSession, request)
        return answer.closed

    async def count(self) -> int:
        """What the tool's counter says. Refusal; CheckFailed if it says nothing."""
        return number_in(await self.call(Kind.READ))

    async def expect_count(self, count: int, after: str) -> None:
        """CheckFailed unless the counter says `count`."""
        found = await self.count()
        expect(found == count, f"{after}: {found} effects, not {count}")


async def asked_optionally(method: Callable[..., Awaitable[Any]], request: Any) -> Any:
    """One RPC that a service need not have. Refusal; Skipped where it is not served."""
    try:
        return await ask(method, request)
    except Refusal as refusal:
        if refusal.code is grpc.StatusCode.UNIMPLEMENTED:
            raise Skipped(f"the service does not serve {refusal.method}") from refusal
        raise


def text_of(result: pb.CallResult) -> str:
    """All text of an observation."""
    return "".join(part.text for part in result.observation)


def number_in(result: pb.CallResult) -> int:
    """The first whole number of an observation. CheckFailed if there is none."""
    expect(not result.HasField("error"), f"reading the counter failed: {result.error.message}")
    found = find_number(text_of(result))
    if found is None:
        raise CheckFailed(
            f"the counter was read as {text_of(result)[:80]!r}, which holds no number"
        )
    return found


def find_number(text: str) -> int | None:
    """The first whole number in it."""
    found = re.search(r"-?\d{1,18}", text)
    return None if found is None else int(found[0])


def error_kind(result: pb.CallResult) -> str:
    """For example "TIMEOUT"; "" where the result has no error, or one of no known kind."""
    if not result.HasField("error"):
        return ""
    if result.error.kind not in reasons_pb2.ToolErrorKind.values():
        return ""
    return reasons_pb2.ToolErrorKind.Name(result.error.kind).removeprefix("TOOL_ERROR_KIND_")


async def refused(asking: Awaitable[object], *reasons: str, doing: str) -> Refusal:
    """CheckFailed unless `asking` ends in one of `reasons` with the code that belongs to it."""
    try:
        answer = await asking
    except Refusal as refusal:
        expect(refusal.reason in reasons, f"{doing}: {refusal}, not {' or '.join(reasons)}")
        number = reasons_pb2.ErrorReason.Value(f"ERROR_REASON_{refusal.reason}")
        code = ServiceError(number, "").code
        expect(
            refusal.code is code,
            f"{doing}: {refusal.reason} came with {refusal.code.name}, not {code.name}",
        )
        return refusal
    raise CheckFailed(f"{doing}: answered {str(answer)[:80]!r}, not {' or '.join(reasons)}")
