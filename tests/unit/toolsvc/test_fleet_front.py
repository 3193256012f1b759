"""What clients hear of a front, some of whose hosts are slow, silent or dead."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import grpc
import grpc.aio
import pytest

from tests.support.fleets import Front, fronting
from tests.support.hosts import refused
from tests.support.tools import ToolDouble, serving
from toolsvc.edge.wire import open_from_proto
from toolsvc.errors import Reason
from toolsvc.fleet.resources import NOTHING
from toolsvc.fleet.watching import watch
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.rpc.channel import call as rpc
from toolwright.rpc.errors import ServiceError, abort, from_rpc_error
from toolwright.tool.v1 import tool_pb2 as pb

SECONDS = 10.0
"""More than enough: what is late here never comes."""
UNHEARD = "BACKEND_DOWN: the host at .* did not answer in time"


class Holder(ToolDouble):
    """Holds one blob, or none."""

    def __init__(self, data: bytes = b"") -> None:
        super().__init__()
        self.data = data

    async def GetBlob(
        self, request: pb.GetBlobRequest, context: Any
    ) -> AsyncIterator[pb.GetBlobResponse]:
        if not self.data:
            await abort(context, ServiceError(reasons.ERROR_REASON_BLOB_NOT_FOUND, "not here"))
        yield pb.GetBlobResponse(data=self.data)


class Silent(Holder):
    """Takes the request and never answers, as a machine that swaps does."""

    async def GetBlob(
        self, request: pb.GetBlobRequest, context: Any
    ) -> AsyncIterator[pb.GetBlobResponse]:
        await asyncio.Event().wait()
        yield pb.GetBlobResponse()


class Slow(ToolDouble):
    """Does all that it is asked; until `free` is set too late to be heard."""

    def __init__(self) -> None:
        super().__init__()
        self.free = asyncio.Event()

    async def OpenSession(
        self, request: pb.OpenSessionRequest, context: Any
    ) -> pb.OpenSessionResponse:
        answer = await super().OpenSession(request, context)
        await self._in_time(context)
        return answer

    async def RenewLeases(
        self, request: pb.RenewLeasesRequest, context: Any
    ) -> pb.RenewLeasesResponse:
        answer = await super().RenewLeases(request, context)
        await self._in_time(context)
        return answer

    async def _in_time(self, context: Any) -> None:
        if not self.free.is_set():
            # What the front sees when its own deadline has passed, without the wait for it.
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "too late")


class Beats:
    """Ray's word of which sessions the host holds, when the test says so."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self._held: asyncio.Queue[frozenset[str]] = asyncio.Queue()

    async def beat(self) -> frozenset[str]:
        self.asked.set()
        return await self._held.get()

    async def say(self, *held: str) -> None:
        """Returns once the front has acted on it and asks again."""
        self.asked.clear()
        self._held.put_nowait(frozenset(held))
        await self.asked.wait()

    async def kill(self) -> None:
        """There is nobody."""


def wish(session: str) -> pb.OpenSessionRequest:
    return pb.OpenSessionRequest(session_id=session, owner="o")


def calling(session: str) -> pb.CallToolRequest:
    return pb.CallToolRequest(session_id=session, call_id="c", arguments={"code": "1+2"})


async def opened(front: Front, session: str) -> None:
    await rpc(front.stub.OpenSession, wish(session), timeout=SECONDS)


async def observed(front: Front, session: str) -> str:
    answer = await rpc(front.stub.CallTool, calling(session), timeout=SECONDS)
    return str(answer.result.observation[0].text)


async def blob(front: Front) -> bytes:
    pieces = front.stub.GetBlob(pb.GetBlobRequest(sha256="5" * 64), timeout=SECONDS)
    try:
        return b"".join([piece.data async for piece in pieces])
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error) from error


async def test_a_silent_host_keeps_no_blob_of_another_back() -> None:
    async with AsyncExitStack() as stack:
        doubles = [Silent(), Holder(), Holder(b"an image"), Silent()]
        for double in doubles:
            await stack.enter_async_context(serving(double))
        front = await stack.enter_async_context(fronting(*doubles))
        assert await blob(front) == b"an image"


@pytest.mark.parametrize(
    ("dead", "reason"),
    [(False, reasons.ERROR_REASON_BLOB_NOT_FOUND), (True, reasons.ERROR_REASON_BACKEND_DOWN)],
)
async def test_only_all_hosts_together_can_say_that_a_blob_is_not_there(
    dead: bool, reason: int
) -> None:
    async with serving(Holder()) as one, serving(Holder()) as other, fronting(one, other) as front:
        if dead:
            await one.stop()
        with pytest.raises(ServiceError) as failure:
            await blob(front)
        assert failure.value.reason == reason


async def test_a_session_that_is_opened_after_the_host_looked_lives_on() -> None:
    beats = Beats()
    async with serving(ToolDouble()) as double, fronting(double, words=[beats]) as front:
        # As after a first request that was not heard of.
        front.sessions.place(open_from_proto(wish("s")), NOTHING)
        watching = asyncio.create_task(watch(front.links[0], front.sessions))
        await beats.asked.wait()
        await opened(front, "s")
        await beats.say()
        assert front.sessions.find("s").opened
        await beats.say()
        with refused(Reason.SESSION_CLOSED):
            front.sessions.find("s")
    assert await watching == 0


async def test_a_session_whose_opening_was_not_heard_of_stays_where_it_was_placed() -> None:
    slow, quick = Slow(), ToolDouble()
    async with serving(slow), serving(quick), AsyncExitStack() as stack:
        front = await stack.enter_async_context(fronting(slow, quick))
        with pytest.raises(ServiceError, match=UNHEARD):
            await opened(front, "s")
        await opened(front, "other")
        slow.free.set()
        await opened(front, "s")
        assert await observed(front, "s") == "3"
    assert (slow.live, quick.live) == ({"s"}, {"other"})
    assert (slow.ran, quick.ran) == (["c"], [])


async def test_a_host_that_is_not_heard_has_lost_no_leases() -> None:
    async with serving(Slow()) as slow, serving(ToolDouble()) as quick:
        slow.free.set()
        async with fronting(slow, quick) as front:
            for session in "ab":
                await opened(front, session)
            slow.free.clear()
            renewal = pb.RenewLeasesRequest(owner="o", session_ids=["a", "b", "c"])
            with pytest.raises(ServiceError, match=UNHEARD):
                await rpc(front.stub.RenewLeases, renewal, timeout=SECONDS)
            slow.free.set()
            answer = await rpc(front.stub.RenewLeases, renewal, timeout=SECONDS)
    assert (set(answer.held), set(answer.lost)) == ({"a", "b"}, {"c"})


async def test_a_stream_reaches_the_sessions_of_all_hosts_and_tells_of_the_lost() -> None:
    async with AsyncExitStack() as stack:
        doubles = [await stack.enter_async_context(serving(ToolDouble())) for _ in range(2)]
        front = await stack.enter_async_context(fronting(*doubles))
        for session in ("a", "b"):
            await opened(front, session)
        assert [len(double.opened) for double in doubles] == [1, 1]
        stream = front.stub.StreamCalls(timeout=SECONDS)
        for number, session in enumerate(("a", "b", "nowhere")):
            await stream.write(pb.StreamCallsRequest(id=number, call=calling(session)))
        answers = {answer.id: answer for answer in [await stream.read() for _ in range(3)]}
        for number in (0, 1):
            assert answers[number].answer.result.observation[0].text == "3"
        assert answers[2].error.detail.reason == reasons.ERROR_REASON_SESSION_NOT_FOUND
        front.links[0].lose("its machine burnt")
        lost = doubles[0].opened[0].session_id
        await stream.write(pb.StreamCallsRequest(id=3, call=calling(lost)))
        answer = await stream.read()
        assert answer.error.detail.reason == reasons.ERROR_REASON_SESSION_LOST
        stream.cancel()


class Forking(ToolDouble):
    """Opens a session for whatever is asked to be forked."""

    async def ForkSession(
        self, request: pb.ForkSessionRequest, context: Any
    ) -> pb.ForkSessionResponse:
        return pb.ForkSessionResponse(session=await self.OpenSession(request.open, context))


def forking(parent: str, child: str) -> pb.ForkSessionRequest:
    return pb.ForkSessionRequest(session_id=parent, open=wish(child))


async def test_a_fork_that_its_host_refuses_takes_no_place() -> None:
    fault = ServiceError(reasons.ERROR_REASON_SESSION_BUSY, "a call runs", retry_after=0.1)
    async with serving(Forking()) as double, fronting(double) as front:
        await opened(front, "a")
        double.open_faults = [fault]
        with pytest.raises(ServiceError) as busy:
            await rpc(front.stub.ForkSession, forking("a", "b"), timeout=SECONDS)
        assert (busy.value.reason_name, busy.value.retry_after) == ("SESSION_BUSY", 0.1)
        assert len(front.sessions) == 1
        await rpc(front.stub.ForkSession, forking("a", "b"), timeout=SECONDS)
