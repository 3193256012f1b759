"""Workers that see different members: real hosts and real gRPC in one process, views by hand."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any

import grpc.aio
import pytest

import toolsvc.workers.siblings
from tests.support.callers import OWNERS, TOKENS, token_of
from toolsvc import Tool
from toolsvc.edge.client import blob_in_pieces, reference
from toolsvc.host.host import Host
from toolsvc.types import Media, SessionInfo
from toolsvc.workers.placement import Member, View
from toolsvc.workers.routing import RoutedServicer
from toolsvc.workers.siblings import Siblings
from toolwright.common.v1 import media_pb2, reasons_pb2
from toolwright.rpc.channel import call as rpc
from toolwright.rpc.channel import open_channel
from toolwright.rpc.errors import ServiceError, from_rpc_error
from toolwright.rpc.server import Server
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.tool.v1 import tool_pb2_grpc

NAME = pb.DESCRIPTOR.services_by_name["ToolService"].full_name
BEARER = (("authorization", f"Bearer {token_of('')}"),)


class Counter(Tool):
    """Counts its sessions."""

    name = "counter"

    def __init__(self) -> None:
        self.opened = 0
        self.blobs: dict[str, bytes] = {}
        """Of the last session."""

    async def open(self, session: SessionInfo) -> None:
        self.opened += 1
        self.blobs = {name: media.data for name, media in session.blobs.items()}

    async def call(self, state: object, call: object) -> str:
        return "x"


@dataclass
class Worker:
    member: Member
    siblings: Siblings
    tool: Counter
    stub: Any
    server: Server

    async def open(self, session: str, *blobs: media_pb2.BlobRef) -> str:
        request = pb.OpenSessionRequest(session_id=session, owner="o", blobs=blobs)
        return str((await rpc(self.stub.OpenSession, request, timeout=20)).endpoint)

    async def put(self, data: bytes) -> media_pb2.BlobRef:
        blob = reference(Media(media_type="image/png", data=data))
        await rpc(self.stub.PutBlob, blob_in_pieces(blob, data), timeout=20)
        return blob

    async def get(self, blob: media_pb2.BlobRef) -> bytes:
        request = pb.GetBlobRequest(sha256=blob.sha256)
        try:
            return b"".join([piece.data async for piece in self.stub.GetBlob(request, timeout=20)])
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error

    async def renew(self, *believed: str) -> pb.RenewLeasesResponse:
        request = pb.RenewLeasesRequest(owner="o", session_ids=believed)
        return await rpc(self.stub.RenewLeases, request, timeout=20)

    async def close(self, session: str) -> bool:
        request = pb.CloseSessionRequest(session_id=session)
        return bool((await rpc(self.stub.CloseSession, request, timeout=20)).closed)

    async def call(self, session: str) -> pb.CallToolResponse:
        request = pb.CallToolRequest(session_id=session, call_id="c", action="<counter>x</counter>")
        return await rpc(self.stub.CallTool, request, timeout=20)


@pytest.fixture
async def three() -> AsyncIterator[list[Worker]]:
    """Slots 0 and 1 joined first, slot 2 later; nobody was told a view yet."""
    async with AsyncExitStack() as stack:
        workers = []
        for slot, joined in enumerate((1, 1, 2)):
            link = f"unix-abstract:toolsvc-test-{secrets.token_hex(8)}"
            tool, siblings, server = Counter(), Siblings(slot), Server(link, tokens=TOKENS)
            host = await stack.enter_async_context(Host([tool]))
            servicer = RoutedServicer(host, "test", siblings)
            server.add(NAME, lambda s, one=servicer: add(one, s))
            await server.start()
            stack.push_async_callback(server.stop, 0)
            stack.push_async_callback(siblings.close)
            channel = await stack.enter_async_context(open_channel(link, token_of("")))
            member = Member(slot=slot, joined=joined, endpoint=f"worker-{slot}", link=link)
            stub: Any = tool_pb2_grpc.ToolServiceStub(channel)
            workers.append(Worker(member, siblings, tool, stub, server))
        yield workers


def add(servicer: RoutedServicer, server: Any) -> None:
    tool_pb2_grpc.add_ToolServiceServicer_to_server(servicer, server)


def tell(workers: Sequence[Worker], epoch: int, of: Sequence[Worker]) -> None:
    for worker in workers:
        worker.siblings.update(View(epoch=epoch, members=tuple(one.member for one in of)))


def targeted(workers: Sequence[Worker], worker: Worker, *, before: Worker | None = None) -> str:
    """A session id whose target among `workers` is `worker`, and `before` while there was no slot
    2."""
    now = View(epoch=1, members=tuple(one.member for one in workers))
    then = View(epoch=1, members=now.members[:2])
    return next(
        name
        for name in map(str, range(1000))
        if now.target(name) == worker.member
        and (before is None or then.target(name) == before.member)
    )


async def test_a_replacement_does_not_open_what_an_elder_holds(three: list[Worker]) -> None:
    first, second, late = three
    session = targeted(three, late)
    tell([first, second], 1, [first, second])
    held_at = await first.open(session)
    tell(three, 2, three)
    for door in three:
        assert await door.open(session) == held_at
    assert sum(worker.tool.opened for worker in three) == 1


async def test_a_worker_refuses_what_an_older_view_would_place_there(three: list[Worker]) -> None:
    first, second, late = three
    session = targeted(three, late, before=second)
    tell([first], 1, [first, second])
    tell([second, late], 2, three)
    with pytest.raises(ServiceError, match="the workers have changed") as failure:
        await first.open(session)
    assert failure.value.retry_after is not None
    assert not any(worker.tool.opened for worker in three)
    tell([first], 2, three)
    assert await first.open(session) == "worker-2"


async def test_a_worker_with_an_old_view_may_open_and_the_new_target_finds_it(
    three: list[Worker],
) -> None:
    first, second, late = three
    session = targeted(three, late, before=first)
    tell([first], 1, [first, second])
    tell([second, late], 2, three)
    asking = asyncio.create_task(late.open(session))
    assert await first.open(session) == "worker-0"
    tell([first], 2, three)
    assert await asking == "worker-0"
    assert [worker.tool.opened for worker in three] == [1, 0, 0]


async def test_what_is_asked_under_a_newer_view_waits_for_it(three: list[Worker]) -> None:
    """An elder answers "not here" only once it will not open it any more."""
    first, second, late = three
    tell([first, second], 1, [first, second])
    tell([late], 2, three)
    opening = asyncio.create_task(late.open(targeted(three, late)))
    done, _ = await asyncio.wait([opening], timeout=0.2)
    assert not done
    assert late.tool.opened == 0
    tell([first, second], 2, three)
    assert await opening == "worker-2"


async def test_nothing_is_lost_or_closed_for_want_of_an_answer(three: list[Worker]) -> None:
    """A worker that does not answer, but was not declared dead, may hold it."""
    first, second, _ = three
    tell([first, second], 1, [first, second])
    session = targeted([first, second], second)
    assert await first.open(session) == "worker-1"
    assert list((await first.renew(session)).held) == [session]
    await second.server.stop(0)
    for ask in (first.renew(session), first.close(session), first.call(session)):
        with pytest.raises(ServiceError) as failure:
            await ask
        assert failure.value.reason_name == "BACKEND_DOWN"
        assert failure.value.retry_after is not None
    tell([first], 2, [first])
    assert list((await first.renew(session)).lost) == [session]
    assert not await first.close(session)


async def test_a_refusal_of_the_holder_is_passed_on(three: list[Worker]) -> None:
    first, second, _ = three
    tell([first, second], 1, [first, second])
    session = targeted([first, second], second)
    await first.open(session)
    assert await second.close(session)
    with pytest.raises(ServiceError) as failure:
        await first.call(session)
    assert failure.value.reason_name == "SESSION_CLOSED"


async def test_a_blob_is_brought_to_the_worker_that_opens_the_session(three: list[Worker]) -> None:
    first, second, late = three
    tell(three, 2, three)
    content = b"a" * (3 << 20)
    sent = [await first.put(content), await second.put(b"b"), await late.put(b"")]
    for target in three:
        await first.open(targeted(three, target), *sent)
        assert target.tool.blobs == {
            blob.sha256: data for blob, data in zip(sent, (content, b"b", b""), strict=True)
        }


async def test_a_blob_is_found_whichever_worker_is_asked(three: list[Worker]) -> None:
    tell(three, 2, three)
    blob = await three[0].put(b"a" * (3 << 20))
    for worker in three:
        assert await worker.get(blob) == b"a" * (3 << 20)


async def test_a_blob_that_nobody_was_sent_is_named_and_opens_nothing(three: list[Worker]) -> None:
    first, second, _ = three
    tell(three, 2, three)
    here, missing = await first.put(b"here"), reference(Media(media_type="", data=b"missing"))
    session = targeted(three, second)
    with pytest.raises(ServiceError) as failure:
        await first.open(session, here, missing)
    assert (failure.value.reason_name, failure.value.subject) == ("BLOB_NOT_FOUND", missing.sha256)
    with pytest.raises(ServiceError) as failure:
        await second.get(missing)
    assert failure.value.reason_name == "BLOB_NOT_FOUND"
    assert not any(worker.tool.opened for worker in three)
    await second.put(b"missing")
    assert await first.open(session, here, missing) == "worker-1"


async def test_a_blob_that_a_silent_worker_may_hold_is_not_called_missing(
    three: list[Worker],
) -> None:
    first, second, _ = three
    tell([first, second], 1, [first, second])
    blob = await second.put(b"there")
    await second.server.stop(0)
    for ask in (first.open(targeted([first, second], first), blob), first.get(blob)):
        with pytest.raises(ServiceError) as failure:
            await ask
        assert failure.value.reason_name == "BACKEND_DOWN"


@pytest.mark.parametrize("header", [("toolwright-hop", "nowhere"), ("toolwright-epoch", "soon")])
async def test_what_no_worker_says_is_refused(three: list[Worker], header: tuple[str, str]) -> None:
    first, *_ = three
    tell(three, 2, three)
    requests = {
        "OpenSession": pb.OpenSessionRequest(session_id="s", owner="o"),
        "CancelCall": pb.CancelCallRequest(session_id="s", call_id="c"),
        "CloseSession": pb.CloseSessionRequest(session_id="s"),
        "RenewLeases": pb.RenewLeasesRequest(owner="o"),
    }
    for method, request in requests.items():
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await getattr(first.stub, method)(request, timeout=20, metadata=(header,))
        assert str(from_rpc_error(failure.value)).startswith("INVALID_REQUEST: metadata "), method


async def test_a_view_that_never_comes_is_not_waited_for(
    three: list[Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolsvc.workers.siblings, "VIEW_SECONDS", 0.01)
    tell(three, 2, three)
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await three[0].stub.CloseSession(
            pb.CloseSessionRequest(session_id="s"),
            timeout=20,
            metadata=(("toolwright-epoch", "1000000"),),
        )
    assert (
        str(from_rpc_error(failure.value))
        == "BACKEND_DOWN: this worker was told of no view 1000000"
    )


async def test_a_stream_tells_of_each_call_whose_session_is_elsewhere(three: list[Worker]) -> None:
    first, second, _ = three
    tell([first, second], 1, [first, second])
    here, there = targeted([first, second], first), targeted([first, second], second)
    for session in (here, there):
        await first.open(session)
    stream = first.stub.StreamCalls(timeout=20, metadata=BEARER)
    for number, session in enumerate((there, here, "nowhere", "")):
        call = pb.CallToolRequest(
            session_id=session, call_id="c", action="<counter>x</counter>", tool="counter"
        )
        await stream.write(pb.StreamCallsRequest(id=number, call=call))
    await stream.done_writing()
    answers = {answer.id: answer async for answer in stream}
    assert answers[0].error.detail.reason == reasons_pb2.ERROR_REASON_WRONG_ENDPOINT
    assert answers[0].error.detail.endpoint == "worker-1"
    assert answers[1].answer.result.observation[0].text == "x"
    assert answers[2].error.detail.reason == reasons_pb2.ERROR_REASON_SESSION_NOT_FOUND
    assert answers[3].error.detail.reason == reasons_pb2.ERROR_REASON_INVALID_REQUEST


async def test_a_session_is_looked_at_where_it_is(three: list[Worker]) -> None:
    first, second, _ = three
    tell([first, second], 1, [first, second])
    session = targeted([first, second], second)
    await first.open(session)
    await second.call(session)

    async def look(worker: Worker, name: str) -> pb.GetSessionResponse:
        return await rpc(worker.stub.GetSession, pb.GetSessionRequest(session_id=name), timeout=20)

    held = await look(second, session)
    assert list(held.call_ids) == ["c"]
    assert held.endpoint == "worker-1"
    for worker, name, reason in (
        (first, session, "WRONG_ENDPOINT"),
        (first, "nowhere", "SESSION_NOT_FOUND"),
        (first, "", "INVALID_REQUEST"),
    ):
        with pytest.raises(ServiceError) as refused:
            await look(worker, name)
        assert refused.value.reason_name == reason


async def test_a_fork_lives_with_its_parent_and_is_found_from_everywhere(
    three: list[Worker],
) -> None:
    first, second, _ = three
    tell([first, second], 1, [first, second])
    parent, other = targeted([first, second], second), targeted([first, second], first)
    await first.open(parent)
    await first.open(other)
    child = "child"

    async def fork(worker: Worker, of: str, into: str) -> pb.ForkSessionResponse:
        wish = pb.OpenSessionRequest(session_id=into, owner="o")
        request = pb.ForkSessionRequest(session_id=of, open=wish)
        return await rpc(worker.stub.ForkSession, request, timeout=20)

    with pytest.raises(ServiceError) as refused:
        await fork(first, parent, child)
    assert refused.value.endpoint == "worker-1"
    assert (await fork(second, parent, child)).session.endpoint == "worker-1"
    assert (await fork(second, parent, child)).session.session_id == child
    assert sorted((await first.renew()).held) == sorted((parent, other, child))
    with pytest.raises(ServiceError) as elsewhere:
        await first.call(child)
    assert elsewhere.value.endpoint == "worker-1"
    with pytest.raises(ServiceError) as taken:
        await fork(second, parent, other)
    assert taken.value.reason_name == "INVALID_REQUEST"
    assert await first.close(child)


async def test_a_session_is_its_owners_at_whatever_worker_one_asks(three: list[Worker]) -> None:
    tell(three, 2, three)
    async with AsyncExitStack() as stack:

        async def door(at: Worker, owner: str) -> Worker:
            link = open_channel(at.member.link, token_of(owner))
            stub: Any = tool_pb2_grpc.ToolServiceStub(await stack.enter_async_context(link))
            return replace(at, stub=stub)

        mine, theirs = [[await door(at, owner) for at in three] for owner in OWNERS]
        held_at = await mine[0].open("s")
        for at in range(3):
            for stranger in (theirs[at], three[at]):
                assert not await stranger.close("s")
                told = await stranger.renew("s")
                assert (list(told.held), list(told.lost)) == ([], ["s"])
                with pytest.raises(ServiceError, match="SESSION_NOT_FOUND"):
                    await stranger.call("s")
                with pytest.raises(ServiceError, match="INVALID_REQUEST"):
                    await stranger.open("s")
            assert list((await mine[at].renew("s")).held) == ["s"]
            assert await mine[at].open("s") == held_at
        assert await mine[1].close("s")
