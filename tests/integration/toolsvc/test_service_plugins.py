"""Tools of a file of one's own, in a real process."""

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.service import Client, refused, seconds
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.rpc.channel import call as rpc
from toolwright.tool.v1 import tool_pb2 as pb

from .conftest import Service, start_service

pytestmark = pytest.mark.quick

SMALL = ("--ready", "2", "--shards", "1")
PLUGIN = '''
import time
from toolsvc import Tool, tool

@tool
def sleep(text: str) -> str:
    """Sleeps for so many seconds."""
    time.sleep(float(text))
    return text

@tool
def add(a: int, b: int) -> int:
    """Adds."""
    return a + b

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
    assert [tool.name for tool in listed.tools] == ["sleep", "add", "crash", "notes"]
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
    late = (await client.call(session, "<sleep>2</sleep>", run_limit=seconds(0.2))).result
    assert late.error.kind == reasons.TOOL_ERROR_KIND_TIMEOUT
    answer = await client.call(session, "<nothing>x</nothing>")
    assert not answer.result.valid
    with refused(reasons.ERROR_REASON_UNKNOWN_TOOL):
        await client.call(session, "x", tool="nothing")


SPY = """
import sys
from toolsvc import tool

@tool
def imported(text: str) -> list[str]:
    "Names of the modules of its service."
    return list(sys.modules)
"""


async def test_a_service_imports_the_packages_of_its_own_tools_alone(
    start: Any, connect: Callable[[str], Client], tmp_path: Path
) -> None:
    (tmp_path / "spy.py").write_text(SPY, encoding="utf-8")
    client = connect(start("python", str(tmp_path / "spy.py"), *SMALL).address)
    session = await client.open()
    seen = await client.call(session, "<imported> any </imported>")
    names = set(json.loads(seen.result.observation[0].text))
    assert "toolsvc.tools.python" in names
    theirs = {"aiohttp", "bm25s", "faiss", "numpy", "psycopg", "sentence_transformers", "torch"}
    assert not names & theirs


async def test_a_plugin_that_never_returns_does_not_keep_the_service(
    start: Any, connect: Callable[[str], Client], plugin: str
) -> None:
    service = start(plugin)
    client = connect(service.address)
    session = await client.open()
    late = (await client.call(session, "<sleep>60</sleep>", run_limit=seconds(0.1))).result
    assert late.error.kind == reasons.TOOL_ERROR_KIND_TIMEOUT
    service.process.terminate()
    assert await asyncio.to_thread(service.process.wait, 20) == 0
