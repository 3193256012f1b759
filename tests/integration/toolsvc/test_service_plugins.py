"""Tools of a file of one's own, in a real process."""

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from tests.support.service import Client, refused, seconds
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.rpc.channel import call as rpc
from toolwright.tool.v1 import tool_pb2 as pb

from .conftest import Service, start_service

pytestmark = pytest.mark.quick

SMALL = ("--ready", "2", "--shards", "1")
PLUGIN = '''
import threading, time
from toolsvc import Media, Result, Text, Tool, tool

calls = 0
release = threading.Event()

@tool
def count(text: str) -> str:
    """Counts its calls."""
    global calls
    time.sleep(float(text or 0))
    calls += 1
    return str(calls)

@tool
def add(a: int, b: int) -> int:
    """Adds."""
    return a + b

@tool(media=True)
def picture(size: int):
    """An image of so many bytes, and everything else that an answer may hold."""
    return Result(
        observation=(Text(text="see"), Media(media_type="image/png", data=b"x" * size)),
        done=True, reward=-0.5, metrics={"seen": 2.0},
    )

@tool
def long(count: int) -> str:
    """Much text."""
    return "a" * count + "\\x00b" * count

class Crash(Tool):
    name = "crash"
    def call(self, state, call):
        raise RuntimeError("this plugin is broken")

class Notes(Tool):
    name = "notes"
    stateful = True
    async def open(self, session):
        return [session.metadata.get("first", "")]
    async def call(self, state, call):
        state.append(call.arguments["text"])
        return ",".join(state)
'''


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("plugin") / "my_tools.py"
    path.write_text(PLUGIN, encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def served(plugin: str) -> Iterator[Service]:
    """One service of the plugin, for the tests that end no service."""
    running = start_service(Path(plugin).with_name("errors.log"), plugin)
    yield running
    running.process.kill()
    running.process.wait(20)


async def test_a_plugin_file(served: Service, connect: Callable[[str], Client]) -> None:
    client = connect(served.address)
    listed = await rpc(client.stub.ListTools, pb.ListToolsRequest(), timeout=10)
    assert [tool.name for tool in listed.tools] == [
        "count",
        "add",
        "picture",
        "long",
        "crash",
        "notes",
    ]
    session = await client.open(metadata={"first": "a"})
    answer = await client.call(session, "<notes>b</notes>")
    assert answer.result.observation[0].text == "a,b"
    assert answer.result.isolation == ""
    add = '<tool_call>{"name": "add", "arguments": {"a": 1, "b": 2}}</tool_call>'
    assert (await client.call(session, add)).result.observation[0].text == "3"
    wrong = '<tool_call>{"name": "add", "arguments": {"a": "x", "b": 2}}</tool_call>'
    assert not (await client.call(session, wrong)).result.valid
    crash = (await client.call(session, "<crash>x</crash>")).result
    assert crash.error.kind == reasons.TOOL_ERROR_KIND_EXCEPTION
    assert "this plugin is broken" in crash.observation[0].text
    late = (await client.call(session, "<count>2</count>", run_limit=seconds(0.2))).result
    assert late.error.kind == reasons.TOOL_ERROR_KIND_TIMEOUT
    answer = await client.call(session, "<nothing>x</nothing>")
    assert not answer.result.valid
    with refused(reasons.ERROR_REASON_UNKNOWN_TOOL):
        await client.call(session, "x", tool="nothing")


async def test_what_a_tool_may_answer_arrives(
    served: Service, connect: Callable[[str], Client]
) -> None:
    client = connect(served.address)
    listed = await rpc(client.stub.ListTools, pb.ListToolsRequest(), timeout=10)
    media = {tool.name: tool.capabilities.media for tool in listed.tools}
    assert media["picture"]
    assert not media["add"]
    session = await client.open()
    small = (await client.call(session, "<picture>5</picture>")).result
    assert (small.observation[0].text, small.observation[1].media.data) == ("see", b"xxxxx")
    assert (small.done, small.reward, dict(small.metrics)) == (True, -0.5, {"seen": 2.0})
    size = (2 << 20) + 3
    large = (await client.call(session, f"<picture>{size}</picture>")).result
    blob = large.observation[1].blob
    assert (blob.size, blob.media_type) == (size, "image/png")
    pieces = [
        piece.data
        async for piece in client.stub.GetBlob(
            pb.GetBlobRequest(sha256=blob.sha256, offset=1), timeout=20
        )
    ]
    assert b"".join(pieces) == b"x" * (size - 1)
    assert max(map(len, pieces)) == 1 << 20
    await rpc(client.stub.CloseSession, pb.CloseSessionRequest(session_id=session), timeout=10)
    with pytest.raises(grpc.aio.AioRpcError) as gone:
        async for _ in client.stub.GetBlob(pb.GetBlobRequest(sha256=blob.sha256), timeout=10):
            pass
    assert gone.value.code() is grpc.StatusCode.NOT_FOUND


@pytest.fixture
def spy(tmp_path: Path) -> str:
    """A tool that tells what its service has imported."""
    path = tmp_path / "spy.py"
    path.write_text(
        "import sys\nfrom toolsvc import tool\n\n@tool\n"
        "def imported(text: str) -> list[str]:\n    'Tells it.'\n    return list(sys.modules)\n",
        encoding="utf-8",
    )
    return str(path)


async def test_a_service_imports_the_packages_of_its_own_tools_alone(
    start: Any, connect: Callable[[str], Client], spy: str
) -> None:
    client = connect(start("python", spy, *SMALL).address)
    session = await client.open()
    seen = await client.call(session, "<imported> any </imported>")
    names = set(json.loads(seen.result.observation[0].text))
    assert "toolsvc.tools.python" in names
    theirs = {"aiohttp", "bm25s", "faiss", "numpy", "psycopg", "sentence_transformers", "torch"}
    assert not names & theirs


async def test_long_observations_are_cut_by_the_service(
    start: Any, connect: Callable[[str], Client], plugin: str
) -> None:
    client = connect(start(plugin, "--observation-chars", "1000").address)
    session = await client.open()
    result = (await client.call(session, "<long>5000</long>")).result
    text = result.observation[0].text
    assert result.truncated
    assert len(text) <= 1000
    assert (text[0], text[-1]) == ("a", "b")
    assert "\x00" not in text
    assert not (await client.call(session, "<long>10</long>")).result.truncated


async def test_a_plugin_that_never_returns_does_not_keep_the_service(
    start: Any, connect: Callable[[str], Client], plugin: str
) -> None:
    service = start(plugin)
    client = connect(service.address)
    session = await client.open()
    late = (await client.call(session, "<count>60</count>", run_limit=seconds(0.1))).result
    assert late.error.kind == reasons.TOOL_ERROR_KIND_TIMEOUT
    service.process.terminate()
    assert await asyncio.to_thread(service.process.wait, 20) == 0
