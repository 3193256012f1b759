"""A front, and workers that clients call at endpoints of their own: real hosts and real gRPC in one
process."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

import grpc.aio
import pytest

from tests.support.callers import OWNERS, TOKENS, token_of
from tests.support.fleets import Front, Word, answering
from toolsvc import Tool
from toolsvc.edge.client import reference
from toolsvc.edge.service import ToolServicer
from toolsvc.fleet.hosts import HostProcess, Ready
from toolsvc.fleet.link import HostLink
from toolsvc.fleet.local.endpoint import EndpointServicer, FrontLink
from toolsvc.host.host import Host
from toolsvc.types import Media, SessionInfo
from toolwright.common.v1 import media_pb2, reasons_pb2
from toolwright.rpc.auth import TokenOnBehalf, Tokens
from toolwright.rpc.channel import call as rpc
from toolwright.rpc.channel import open_channel
from toolwright.rpc.errors import ServiceError, TransportError, from_rpc_error
from toolwright.rpc.server import Server
from toolwright.rpc.tool_service import blob_pieces
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.tool.v1 import tool_pb2_grpc

NAME = pb.DESCRIPTOR.services_by_name["ToolService"].full_name
TOKEN = secrets.token_hex(8)
"""Between front and workers."""


class Counter(Tool):
    """Counts its sessions, which open once it is `free`."""

    name = "counter"

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.blobs: dict[str, bytes] = {}
        """Of the last session."""
        self.asked = asyncio.Event()
        """To open a session."""
        self.free = asyncio.Event()
        self.free.set()

    def forks(self) -> bool:
        return True

    async def open(self, session: SessionInfo) -> None:
        self.asked.set()
        await self.free.wait()
        self.opened.append(session.session_id)
        self.blobs = {name: media.data for name, media in session.blobs.items()}

    async def fork(self, state: object, session: SessionInfo) -> None:
        self.opened.append(session.session_id)

    async def call(self, state: object, call: object) -> str:
        return "x"


class Door:
    """One address, as a client with some token asks there."""

    def __init__(self, address: str, channel: grpc.aio.Channel) -> None:
        self.address = address
        self.stub: Any = tool_pb2_grpc.ToolServiceStub(channel)

    async def ask(self, method: str, request: Any) -> Any:
        return await rpc(getattr(self.stub, method), request, timeout=20)

    async def open(self, session: str, *blobs: media_pb2.BlobRef) -> str:
        """The endpoint that is answered."""
        request = pb.OpenSessionRequest(session_id=session, owner="o", blobs=blobs)
        return str((await self.ask("OpenSession", request)).endpoint)

    async def fork(self, parent: str, child: str) -> str:
        wish = pb.OpenSessionRequest(session_id=child, owner="o")
        request = pb.ForkSessionRequest(session_id=parent, open=wish)
        return str((await self.ask("ForkSession", request)).session.endpoint)

    async def look(self, session: str) -> pb.GetSessionResponse:
        answer: pb.GetSessionResponse = await self.ask(
            "GetSession", pb.GetSessionRequest(session_id=session)
        )
        return answer

    async def call(self, session: str) -> str:
        request = pb.CallToolRequest(session_id=session, call_id="c", action="<counter>x</counter>")
        return str((await self.ask("CallTool", request)).result.observation[0].text)

    async def renew(self, *believed: str) -> tuple[set[str], set[str]]:
        """Held and lost."""
        request = pb.RenewLeasesRequest(owner="o", session_ids=believed)
        answer = await self.ask("RenewLeases", request)
        return set(answer.held), set(answer.lost)

    async def close(self, session: str) -> bool:
        return bool(
            (await self.ask("CloseSession", pb.CloseSessionRequest(session_id=session))).closed
        )

    async def put(self, data: bytes) -> media_pb2.BlobRef:
        blob = reference(Media(media_type="image/png", data=data))
        await self.ask("PutBlob", blob_pieces(blob, data))
        return blob

    async def get(self, blob: media_pb2.BlobRef) -> bytes:
        request = pb.GetBlobRequest(sha256=blob.sha256)
        try:
            return b"".join([piece.data async for piece in self.stub.GetBlob(request, timeout=20)])
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error


@dataclass
class Worker:
    endpoint: str
    link: str
    tool: Counter


@dataclass
class Fleet:
    front: Front
    address: str
    workers: list[Worker]
    stack: AsyncExitStack

    async def doors(self, owner: str = "") -> list[Door]:
        """The front's, then each worker's."""
        doors = []
        for address in (self.address, *(worker.endpoint for worker in self.workers)):
            channel = open_channel(address, token_of(owner))
            doors.append(Door(address, await self.stack.enter_async_context(channel)))
        return doors

    def opened(self) -> list[str]:
        return sorted(name for worker in self.workers for name in worker.tool.opened)


def somewhere() -> str:
    return f"unix-abstract:toolsvc-test-{secrets.token_hex(8)}"


@asynccontextmanager
async def served(address: str, tokens: Tokens, servicer: Any) -> AsyncIterator[Server]:
    server = Server(address, tokens=tokens)
    server.add(NAME, lambda s: tool_pb2_grpc.add_ToolServiceServicer_to_server(servicer, s))
    await server.start()
    try:
        yield server
    finally:
        await server.stop(0)


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    """Two workers."""
    private = somewhere()
    async with AsyncExitStack() as stack:
        readys = [
            Ready(link=somewhere(), endpoint=somewhere(), tools=("counter",), isolation="")
            for _ in range(2)
        ]
        word = cast("HostProcess", Word(()))
        front = Front([HostLink(slot, word, ready, TOKEN) for slot, ready in enumerate(readys)])
        workers, public = [], somewhere()
        for ready in readys:
            tool = Counter()
            host = await stack.enter_async_context(Host([tool]))
            back = await stack.enter_async_context(FrontLink(private, TOKEN))
            door = EndpointServicer(host, "test", back, front.sessions.closed)
            await stack.enter_async_context(
                served(ready.link, TokenOnBehalf(TOKEN), ToolServicer(host, "test"))
            )
            await stack.enter_async_context(served(ready.endpoint, TOKENS, door))
            workers.append(Worker(ready.endpoint, ready.link, tool))
        servicer = await stack.enter_async_context(answering(front))
        await stack.enter_async_context(served(private, TokenOnBehalf(TOKEN), servicer))
        await stack.enter_async_context(served(public, TOKENS, servicer))
        yield Fleet(front, public, workers, stack)


def refused(reason: str) -> Any:
    return pytest.raises(ServiceError, match=f"^{reason}")


async def test_whichever_door_is_asked_all_say_the_same_of_a_session(fleet: Fleet) -> None:
    doors = await fleet.doors()
    names = [f"s{number}" for number in range(4)]
    at = {name: await door.open(name) for name, door in zip(names, [*doors, doors[0]], strict=True)}
    assert sorted(at.values()) == sorted([worker.endpoint for worker in fleet.workers] * 2)
    for door in doors:
        for name, endpoint in at.items():
            assert await door.open(name) == endpoint
            assert (await door.look(name)).endpoint in (
                endpoint,
                "" if door.address == endpoint else endpoint,
            )
            if door.address == endpoint:
                assert await door.call(name) == "x"
                continue
            for ask in (
                door.call(name),
                door.ask("CancelCall", pb.CancelCallRequest(session_id=name, call_id="c")),
            ):
                with refused("WRONG_ENDPOINT") as elsewhere:
                    await ask
                assert (elsewhere.value.endpoint, elsewhere.value.subject) == (endpoint, name)
        assert await door.renew(*names, "gone") == (set(names), {"gone"})
        for ask in (door.call("nowhere"), door.look("nowhere")):
            with refused("SESSION_NOT_FOUND"):
                await ask
        assert not await door.close("nowhere")
        with refused("INVALID_REQUEST"):
            await door.look("")
    assert fleet.opened() == names


async def test_a_session_is_opened_once_through_all_doors_at_once(fleet: Fleet) -> None:
    doors = await fleet.doors()
    told = await asyncio.gather(*(door.open("s") for door in doors for _ in range(5)))
    assert len(set(told)) == 1
    assert fleet.opened() == ["s"]


async def test_whatever_door_closes_a_session_its_place_is_free_at_once(fleet: Fleet) -> None:
    doors = await fleet.doors()
    for door in doors:
        await doors[0].open(door.address)
        assert await door.close(door.address)
        assert len(fleet.front.sessions) == 0
        for other in doors:
            assert not await other.close(door.address)
            for ask in (other.call(door.address), other.open(door.address)):
                with refused("SESSION_CLOSED"):
                    await ask


async def test_a_session_that_is_closed_while_it_opens_is_never_opened(fleet: Fleet) -> None:
    doors = await fleet.doors()
    for number in range(4):
        worker, name = fleet.workers[number % 2], f"s{number}"
        worker.tool.free.clear()
        worker.tool.asked.clear()
        opening = asyncio.create_task(doors[0].open(name))
        await worker.tool.asked.wait()
        closer = doors[0] if number < 2 else next(d for d in doors if d.address == worker.endpoint)
        assert await closer.close(name)
        for ask in (opening, doors[0].open(name), doors[1].open(name)):
            with refused("SESSION_CLOSED"):
                await ask
        worker.tool.free.set()
        await doors[0].open(f"held{number}")  # the next one goes to the other worker
    assert fleet.opened() == [f"held{number}" for number in range(4)]


async def test_a_fork_lives_with_its_parent_and_every_door_knows_of_it(fleet: Fleet) -> None:
    doors = await fleet.doors()
    parent = await doors[0].open("parent")
    other = await doors[0].open("other")
    assert parent != other
    for number, door in enumerate(doors):
        for _ in range(2):
            assert await door.fork("parent", f"child{number}") == parent
        with refused("INVALID_REQUEST"):
            await door.fork("parent", "other")
    children = {"child0", "child1", "child2"}
    for door in doors:
        held, _ = await door.renew()
        assert held == {"parent", "other", *children}
        for child in children:
            with refused("INVALID_REQUEST"):
                await door.open(child)
    assert len(fleet.front.sessions) == 5


async def test_one_id_is_opened_once_by_whichever_of_opening_and_forking(fleet: Fleet) -> None:
    doors = await fleet.doors()
    await doors[0].open("a")
    await doors[0].open("b")
    asked = [
        ask for door in doors for ask in (door.open("s"), door.fork("a", "s"), door.fork("b", "s"))
    ]
    told = await asyncio.gather(*asked, return_exceptions=True)
    endpoints = {one for one in told if isinstance(one, str)}
    assert len(endpoints) == 1
    others = {one.reason_name for one in told if isinstance(one, ServiceError)}
    assert others <= {"INVALID_REQUEST"}
    assert fleet.opened() == ["a", "b", "s"]


async def test_blobs_are_had_and_taken_at_every_door(fleet: Fleet) -> None:
    doors = await fleet.doors()
    content = b"a" * (3 << 20)
    sent = [await doors[0].put(content), await doors[1].put(b"b"), await doors[2].put(b"")]
    expected = dict(zip((blob.sha256 for blob in sent), (content, b"b", b""), strict=True))
    for number, door in enumerate(doors):
        endpoint = await door.open(f"s{number}", *sent)
        (worker,) = [one for one in fleet.workers if one.endpoint == endpoint]
        assert worker.tool.blobs == expected
        assert [await door.get(blob) for blob in sent] == list(expected.values())
        missing = reference(Media(media_type="", data=b"missing"))
        for ask in (door.open("s", missing), door.get(missing)):
            with refused("BLOB_NOT_FOUND") as unknown:
                await ask
            assert unknown.value.subject == missing.sha256
    assert "s" not in fleet.opened()
    assert await doors[1].open("s", await doors[2].put(b"missing"))


async def test_a_stream_tells_of_each_call_whose_session_is_elsewhere(fleet: Fleet) -> None:
    front, *doors = await fleet.doors()
    at = {await front.open(name): name for name in ("a", "b")}
    door = doors[0]
    there = next(endpoint for endpoint in at if endpoint != door.address)
    stream = door.stub.StreamCalls(
        timeout=20, metadata=(("authorization", f"Bearer {token_of('')}"),)
    )
    for number, session in enumerate((at[there], at[door.address], "nowhere", "")):
        call = pb.CallToolRequest(
            session_id=session, call_id="c", action="<counter>x</counter>", tool="counter"
        )
        await stream.write(pb.StreamCallsRequest(id=number, call=call))
    await stream.done_writing()
    answers = {answer.id: answer async for answer in stream}
    assert answers[0].error.detail.reason == reasons_pb2.ERROR_REASON_WRONG_ENDPOINT
    assert answers[0].error.detail.endpoint == there
    assert answers[1].answer.result.observation[0].text == "x"
    assert answers[2].error.detail.reason == reasons_pb2.ERROR_REASON_SESSION_NOT_FOUND
    assert answers[3].error.detail.reason == reasons_pb2.ERROR_REASON_INVALID_REQUEST


async def test_a_session_is_its_owners_at_whatever_door_one_asks(fleet: Fleet) -> None:
    mine, theirs = [await fleet.doors(owner) for owner in OWNERS]
    nobodys = await fleet.doors()
    held_at = await mine[0].open("s")
    for door in range(3):
        for stranger in (theirs[door], nobodys[door]):
            assert not await stranger.close("s")
            assert await stranger.renew("s") == (set(), {"s"})
            for ask in (stranger.call("s"), stranger.look("s"), stranger.fork("s", "child")):
                with refused("SESSION_NOT_FOUND"):
                    await ask
            with refused("INVALID_REQUEST"):
                await stranger.open("s")
        assert await mine[door].renew("s") == ({"s"}, set())
        assert await mine[door].open("s") == held_at
    assert await mine[1].close("s")


async def test_what_a_client_may_say_opens_no_link(fleet: Fleet) -> None:
    """The way between front and workers takes their own token alone, whatever clients have."""
    for worker in fleet.workers:
        for token in ("", token_of(""), token_of(OWNERS[0]), f"guessed.{b'alice'.hex()}"):
            async with open_channel(worker.link, token) as channel:
                with pytest.raises(TransportError, match="UNAUTHENTICATED"):
                    await Door(worker.link, channel).open("s")
    assert fleet.opened() == []


async def test_a_worker_that_dies_takes_its_own_sessions_and_frees_what_was_not_open(
    fleet: Fleet,
) -> None:
    front, *doors = await fleet.doors()
    at = {await front.open(name): name for name in ("a", "b")}
    dying, living = fleet.workers
    dying.tool.free.clear()
    dying.tool.asked.clear()
    opening = asyncio.create_task(front.open("opening"))
    await dying.tool.asked.wait()
    link = next(one for one in fleet.front.links if one.endpoint == dying.endpoint)
    link.lose("it was shot")
    fleet.front.sessions.lose(link, "it was shot")
    await link.close()
    with refused("BACKEND_DOWN") as again:
        await opening
    assert again.value.retry_after is not None
    for door in (front, doors[1]):
        for ask in (door.call(at[dying.endpoint]), door.open(at[dying.endpoint])):
            with refused("SESSION_LOST"):
                await ask
        assert await door.renew("a", "b") == ({at[living.endpoint]}, {at[dying.endpoint]})
        assert not await door.close(at[dying.endpoint])
    assert await doors[1].call(at[living.endpoint]) == "x"
    assert await front.open("opening") == living.endpoint
    assert living.tool.opened.count("opening") == 1
