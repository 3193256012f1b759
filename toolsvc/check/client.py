"""What a check works with: a client with its own owner, and that client's sessions.

Invariants
- The client closes every session that a check opened, however the check ended.
- Checks share only channels: owner, session ids and call ids belong to one check.
- A session's calls go to the endpoint that OpenSession named.
"""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar, cast

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

Request = TypeVar("Request", pb.CallToolRequest, pb.OpenSessionRequest)

LEASE_SECONDS = 60.0
QUEUE_SECONDS = 20.0
RUN_SECONDS = 20.0
WAIT_SECONDS = 5.0


class CheckClient:
    """Async context manager. `pace` is a factor for every time that a check chooses."""

    def __init__(
        self, connection: Connection, subjects: Sequence[Subject], *, pace: float = 1.0
    ) -> None:
        self.connection = connection
        self.subjects = subjects
        self.owner = f"toolsvc-check/{uuid.uuid4().hex}"
        self._pace = pace
        self._opened: list[tuple[str, tool_pb2_grpc.ToolServiceAsyncStub]] = []

    async def __aenter__(self) -> CheckClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        for session_id, stub in self._opened:
            with suppress(Refusal):
                await ask(stub.CloseSession, pb.CloseSessionRequest(session_id=session_id))

    @property
    def stub(self) -> tool_pb2_grpc.ToolServiceAsyncStub:
        """The service at the address."""
        return self.connection.stub()

    def seconds(self, value: float) -> float:
        """A time that a check chooses, at this pace, in seconds."""
        return value * self._pace

    async def sleep(self, value: float) -> None:
        await asyncio.sleep(self.seconds(value))

    def subject(
        self, *kinds: Kind, parallel: bool | None = None, can: str = "", cannot: str = ""
    ) -> Subject:
        """The first tool with a probe for all `kinds`, the capability `can` and without the
        capability `cannot`. Raises Skipped if the service has no such tool."""
        wanted = [*(f"with a probe for {kind}" for kind in kinds)]
        wanted += [f"with the capability `{can}`"] * bool(can)
        wanted += [f"without the capability `{cannot}`"] * bool(cannot)
        if parallel is not None:
            wanted += [f"{'with' if parallel else 'without'} parallel calls"]

        def fits(subject: Subject) -> bool:
            has = subject.descriptor.capabilities
            return (
                all(kind in subject.probe for kind in kinds)
                and parallel in (None, subject.descriptor.parallel_calls)
                and (not can or getattr(has, can))
                and not (cannot and getattr(has, cannot))
            )

        return self.find(fits, " and ".join(wanted) or "at all")

    def find(self, fits: Callable[[Subject], object], wanted: str) -> Subject:
        """The first tool that fits. Raises Skipped if there is no tool `wanted`."""
        for subject in self.subjects:
            if fits(subject):
                return subject
        raise Skipped(f"no tool {wanted}")

    @property
    def queue_seconds(self) -> float:
        """Queue limit of calls. A pace below 1 does not shorten it."""
        return QUEUE_SECONDS * max(1.0, self._pace)

    def opening(self, *subjects: Subject, **fields: Any) -> pb.OpenSessionRequest:
        """A request for a session with a new id."""
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
        """OpenSession. The client closes the session. Raises Refusal."""
        self._opened.append((request.session_id, self.stub))
        opened: pb.OpenSessionResponse = await ask(self.stub.OpenSession, request)
        if opened.endpoint:
            self._opened.append((request.session_id, self.connection.stub(opened.endpoint)))
        return opened

    async def send_fork(
        self, parent: CheckSession, request: pb.OpenSessionRequest
    ) -> pb.OpenSessionResponse:
        """ForkSession. The client closes the session. Raises Refusal."""
        self._opened.append((request.session_id, parent.stub))
        answer: pb.ForkSessionResponse = await ask(
            parent.stub.ForkSession, pb.ForkSessionRequest(session_id=parent.id, open=request)
        )
        opened = answer.session
        if not opened.endpoint:
            opened.endpoint = parent.opened.endpoint
        return opened

    async def open(self, subject: Subject | None = None, **fields: Any) -> CheckSession:
        """A session whose calls go to `subject`, or else to the first tool."""
        subject = subject or self.subject()
        request = self.opening(subject, **fields)
        return CheckSession(self, subject, request, await self.send_opening(request))

    async def renew(
        self, session: CheckSession, *believed: str, lease: float = LEASE_SECONDS
    ) -> pb.RenewLeasesResponse:
        """RenewLeases for this owner, at the endpoint of `session`."""
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
        """The turn of the next call that does not name one."""

    def calling(
        self, kind: Kind | None = None, *, text: str = "", seconds: float = 0.0, **fields: Any
    ) -> pb.CallToolRequest:
        """A request for one action with a new call id."""
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
        """One CallTool: a result, or `running`. Raises Refusal."""
        answer: pb.CallToolResponse = await ask(self.stub.CallTool, request, seconds=seconds)
        expect(answer.WhichOneof("outcome"), "CallTool answered neither a result nor `running`")
        return answer

    async def result(self, request: pb.CallToolRequest) -> pb.CallResult:
        """The call's result; asks again while it runs. Raises Refusal."""
        while True:
            answer = await self.send(request)
            if answer.HasField("result"):
                return answer.result

    async def call(self, kind: Kind | None = None, **fields: Any) -> pb.CallResult:
        """The result of a new call. Raises Refusal."""
        return await self.result(self.calling(kind, **fields))

    async def asleep(self, seconds: float, **fields: Any) -> pb.CallToolRequest:
        """The request of a new call that sleeps, and is in flight now."""
        request = self.calling(Kind.SLEEP, seconds=seconds, **fields)
        await self.begin(request)
        return request

    async def expect_running(self, request: pb.CallToolRequest, otherwise: str) -> None:
        """Raises CheckFailed(otherwise) if the call has finished."""
        answer = await self.send(changed(request, wait=Duration()))
        expect(answer.HasField("running"), otherwise)

    async def expect_record(
        self, request: pb.CallToolRequest, recorded: pb.CallResult, doing: str
    ) -> None:
        """Raises CheckFailed if the repeated request has another result than the recorded one."""
        again = await self.result(request)
        differs = [
            field.name
            for field in again.DESCRIPTOR.fields
            if getattr(again, field.name) != getattr(recorded, field.name)
        ]
        expect(again == recorded, f"{doing}: the answers differ in {', '.join(differs)}")

    async def begin(self, request: pb.CallToolRequest) -> None:
        """Sends the call and waits until it runs, if the service reports that. Raises CheckFailed
        if the service does not answer `running`."""
        asking = changed(request, wait=Duration())
        until = time.monotonic() + self.client.seconds(0.3)
        while True:
            answer = await self.send(asking)
            expect(answer.HasField("running"), "a sleeping call was not answered `running`")
            if answer.running.run.ToNanoseconds() > 0 or time.monotonic() > until:
                return
            await asyncio.sleep(0.01)

    async def look(self) -> pb.GetSessionResponse:
        """GetSession. Raises Refusal, or Skipped if the service does not serve it."""
        request = pb.GetSessionRequest(session_id=self.id)
        answer: pb.GetSessionResponse = await asked_optionally(self.stub.GetSession, request)
        return answer

    async def fork(self) -> CheckSession:
        """A fork of this session. Raises Refusal."""
        request = self.client.opening(self.subject)
        opened = await self.client.send_fork(self, request)
        return CheckSession(self.client, self.subject, request, opened)

    async def cancel(self, call_id: str) -> bool:
        """CancelCall: whether it cancelled the call. Raises Refusal."""
        request = pb.CancelCallRequest(session_id=self.id, call_id=call_id)
        answer: pb.CancelCallResponse = await ask(self.stub.CancelCall, request)
        return answer.cancelled

    async def close(self) -> bool:
        """CloseSession: whether the session was open. Raises Refusal."""
        request = pb.CloseSessionRequest(session_id=self.id)
        answer: pb.CloseSessionResponse = await ask(self.stub.CloseSession, request)
        return answer.closed

    async def count(self) -> int:
        """The value of the tool's counter. Raises Refusal, or CheckFailed if it shows no number."""
        return number_in(await self.call(Kind.READ))

    async def expect_count(self, count: int, after: str) -> None:
        """Raises CheckFailed unless the counter is `count`."""
        found = await self.count()
        expect(found == count, f"{after}: {found} effects, not {count}")


def changed(message: Request, **fields: Any) -> Request:
    """A copy of the message with other values in these fields."""
    other: Any = type(message)()
    other.CopyFrom(message)
    for name in fields:
        other.ClearField(name)
    other.MergeFrom(type(message)(**fields))
    return cast(Request, other)


async def asked_optionally(method: Callable[..., Awaitable[Any]], request: Any) -> Any:
    """One optional RPC. Raises Refusal, or Skipped if the service does not serve it."""
    try:
        return await ask(method, request)
    except Refusal as refusal:
        if refusal.code is grpc.StatusCode.UNIMPLEMENTED:
            raise Skipped(f"the service does not serve {refusal.method}") from refusal
        raise


def text_of(result: pb.CallResult) -> str:
    """All text of a result's observation."""
    return "".join(part.text for part in result.observation)


def number_in(result: pb.CallResult) -> int:
    """The first whole number of an observation. Raises CheckFailed without a number."""
    expect(not result.HasField("error"), f"reading the counter failed: {result.error.message}")
    found = find_number(text_of(result))
    if found is None:
        raise CheckFailed(
            f"the counter was read as {text_of(result)[:80]!r}, which holds no number"
        )
    return found


def find_number(text: str) -> int | None:
    """The first whole number in a text."""
    found = re.search(r"-?\d{1,18}", text)
    return None if found is None else int(found[0])


def error_kind(result: pb.CallResult) -> str:
    """The kind of the tool error, for example "TIMEOUT"; "" without an error of a known kind."""
    if not result.HasField("error"):
        return ""
    if result.error.kind not in reasons_pb2.ToolErrorKind.values():
        return ""
    return reasons_pb2.ToolErrorKind.Name(result.error.kind).removeprefix("TOOL_ERROR_KIND_")


def expect_error(result: pb.CallResult, kind: str, doing: str) -> None:
    """Raises CheckFailed unless the result has a tool error of this kind."""
    found = error_kind(result)
    expect(found == kind, f"{doing} answered {found or 'no known error'}, not {kind}")


def expect_success(result: pb.CallResult, doing: str) -> None:
    """Raises CheckFailed if the result has a tool error."""
    error = f"{error_kind(result)} {result.error.message}"
    expect(not result.HasField("error"), f"{doing} answered the tool error {error}")


async def refused(asking: Awaitable[object], *reasons: str, doing: str) -> Refusal:
    """The refusal of `asking`. Raises CheckFailed unless it has one of the reasons, and the code of
    that reason."""
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
