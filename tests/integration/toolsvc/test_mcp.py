"""MCP servers by others as tools, and tools of ours as an MCP server, over real processes."""

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from mcp import Client, MCPError, StdioServerParameters

from bench.ready import free_ports
from tests.integration.toolsvc.conftest import Service
from tests.integration.toolsvc.test_check_services import check
from tests.unit.toolsvc.test_host import calling, opening
from toolsvc.errors import Reason, Refused, StartError
from toolsvc.host import Host
from toolsvc.loader import load_tools
from toolsvc.sandbox.config import SandboxConfig
from toolsvc.types import Media, Recorded, Result, Text
from toolwright.types import ToolErrorKind

SERVERS = Path(__file__).parents[2] / "support" / "mcp"
INSTALL = ("npm", "install", "--no-audit", "--no-fund", "--prefer-offline")
TOOLSVC = [sys.executable, "-c", "from toolsvc.cli import main; main()"]
PROBES = """
[echo]
echo = { message = "@text@" }

[trigger-long-running-operation]
sleep = { duration = "@seconds@", steps = 1 }

[get-tiny-image]
media = {}
"""
NOTES = """
from toolsvc import InvalidAction, Tool, tool


class Notes(Tool):
    name = "notes"
    description = "Keeps notes."
    stateful = True

    def open(self, session):
        return []

    def call(self, state, call):
        if not call.arguments["text"]:
            raise InvalidAction("write something")
        state.append(call.arguments["text"])
        return ",".join(state)


@tool
def shout(text: str) -> str:
    "Says it louder."
    return text.upper()
"""


@pytest.fixture(scope="module")
def servers() -> Path:
    """Folder of the servers' programs."""
    if shutil.which("npm") is None:
        pytest.fail("npm is missing: apt-get install nodejs npm")
    installed = subprocess.run(INSTALL, cwd=SERVERS, capture_output=True, text=True, timeout=180)
    assert installed.returncode == 0, installed.stderr
    return SERVERS / "node_modules" / ".bin"


@asynccontextmanager
async def hosting(word: str, **options: Any) -> AsyncIterator[Host]:
    tools = await load_tools([word], {"mcp": options}, SandboxConfig())
    async with Host(tools) as host:
        await host.open(opening())
        yield host


async def call(host: Host, tool: str, arguments: Any, call_id: str = "a", **more: Any) -> Result:
    request = calling(call_id, tool=tool, arguments=arguments, queue_limit=60.0, **more)
    answer = await host.call(request._replace(digest=repr(request).encode(), wait=30.0))
    assert isinstance(answer, Recorded)
    return answer.result


def text_of(result: Result) -> str:
    return "".join(part.text for part in result.observation if isinstance(part, Text))


async def test_a_server_by_others_on_standard_streams(servers: Path) -> None:
    async with hosting(f"mcp:{servers / 'mcp-server-everything'} stdio") as host:
        described = {tool.name: tool for tool in host.list_tools()}
        assert described["echo"].arguments_schema["required"] == ["message"]
        assert text_of(await call(host, "echo", {"message": "hello"})) == "Echo: hello"
        wrong = await call(host, "echo", {}, "b")
        assert "message" in wrong.invalid_reason
        image = await call(host, "get-tiny-image", {}, "c")
        (png,) = [part for part in image.observation if isinstance(part, Media)]
        assert png.media_type == "image/png"
        assert png.data.startswith(b"\x89PNG")


async def test_each_session_has_a_server_of_its_own_that_ends_with_it(
    servers: Path, tmp_path: Path
) -> None:
    me = psutil.Process()
    env = {"MEMORY_FILE_PATH": str(tmp_path / "memory.jsonl")}
    async with hosting(f"mcp:{servers / 'mcp-server-memory'}", env=env) as host:
        assert me.children() == []
        ada = {"entities": [{"name": "Ada", "entityType": "person", "observations": []}]}
        assert "Ada" in text_of(await call(host, "create_entities", ada))
        assert "Ada" in text_of(await call(host, "read_graph", {}, "b"))
        assert len(me.children()) == 1
        await host.open(opening("other"))
        await call(host, "read_graph", {}, session="other")
        assert len(me.children()) == 2
        await host.close("s")
        assert len(me.children()) == 1
    assert me.children() == []


async def test_a_server_that_dies_takes_its_session_with_it(servers: Path) -> None:
    async with hosting(f"mcp:{servers / 'mcp-server-everything'} stdio") as host:
        await call(host, "echo", {"message": "hello"})
        (child,) = psutil.Process().children()
        child.kill()
        with pytest.raises(Refused) as refusal:
            for number in range(1000):  # until its end is noticed
                await call(host, "echo", {"message": "again"}, f"n{number}")
                await asyncio.sleep(0.01)
        assert refusal.value.reason is Reason.SESSION_LOST
        await host.open(opening("other"))
        assert text_of(await call(host, "echo", {"message": "hello"}, session="other"))


async def test_a_server_that_dies_during_a_call_is_a_crash(servers: Path) -> None:
    async with hosting(f"mcp:{servers / 'mcp-server-everything'} stdio") as host:
        await call(host, "echo", {"message": "hello"})
        long = {"duration": 60, "steps": 60}
        running = asyncio.create_task(call(host, "trigger-long-running-operation", long, "b"))
        await asyncio.sleep(0)
        (child,) = psutil.Process().children()
        child.kill()
        result = await running
        assert result.error is not None
        assert (result.error.kind, result.error.session_lost) == (ToolErrorKind.CRASHED, True)


async def test_a_run_limit_leaves_the_session_usable(servers: Path) -> None:
    async with hosting(f"mcp:{servers / 'mcp-server-everything'} stdio") as host:
        await call(host, "echo", {"message": "hello"})
        long = {"duration": 60, "steps": 60}
        late = await call(host, "trigger-long-running-operation", long, "b", run_limit=0.2)
        assert late.error is not None
        assert late.error.kind is ToolErrorKind.TIMEOUT
        assert text_of(await call(host, "echo", {"message": "on"}, "c")) == "Echo: on"


@pytest.mark.parametrize(
    ("word", "options", "says"),
    [
        ("mcp:/no/such/program", {}, "no/such/program"),
        ("mcp:", {}, "name a command"),
        ("mcp:'", {}, "not a command line"),
        ("mcp:http://127.0.0.1:1/mcp", {}, "127.0.0.1:1"),
        ("mcp:http://127.0.0.1:1/mcp", {"token": "NO_SUCH_VARIABLE"}, "NO_SUCH_VARIABLE"),
        ("mcp:sleep 60", {"start_limit": 0.2}, "start_limit"),
    ],
)
async def test_what_cannot_be_listed_is_one_sentence(word: str, options: Any, says: str) -> None:
    with pytest.raises(StartError, match=says) as failure:
        await load_tools([word], {"mcp": options}, SandboxConfig())
    assert "\n" not in str(failure.value)
    assert psutil.Process().children() == []


@pytest.fixture
def notes(start: Callable[..., Service], tmp_path: Path) -> Service:
    (tmp_path / "notes.py").write_text(NOTES)
    return start(str(tmp_path / "notes.py"))


@pytest.fixture
def notes_url(notes: Service) -> Iterator[str]:
    """Where the same tools are offered over HTTP."""
    (port,) = free_ports(1)
    process = subprocess.Popen([*TOOLSVC, "mcp", notes.address, "--http", f"127.0.0.1:{port}"])
    deadline = time.monotonic() + 60
    while socket.socket().connect_ex(("127.0.0.1", port)):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    yield f"http://127.0.0.1:{port}/mcp"
    process.terminate()
    assert process.wait(20) == 0


def offered(service: Service) -> StdioServerParameters:
    words = [*TOOLSVC[1:], "mcp", service.address]
    return StdioServerParameters(command=TOOLSVC[0], args=words, env=dict(os.environ))


async def test_our_tools_on_standard_streams(notes: Service) -> None:
    async with Client(offered(notes)) as agent:
        listed = {tool.name: tool for tool in (await agent.list_tools()).tools}
        assert set(listed) == {"notes", "shout"}
        assert listed["notes"].input_schema["required"] == ["text"]
        await agent.call_tool("notes", {"text": "a"})
        second = await agent.call_tool("notes", {"text": "b"})
        assert second.content[0].text == "a,b"  # type: ignore[union-attr]
        wrong = await agent.call_tool("notes", {"text": ""})
        assert wrong.is_error
        with pytest.raises(MCPError, match="only notes, shout"):
            await agent.call_tool("nothing", {})


async def test_our_tools_over_http_have_a_session_for_each_mcp_session(notes_url: str) -> None:
    async with Client(notes_url, mode="legacy") as agent:
        await agent.call_tool("notes", {"text": "a"})
    async with hosting(f"mcp:{notes_url}") as host:
        assert text_of(await call(host, "notes", {"text": "b"})) == "b"
        assert text_of(await call(host, "notes", {"text": "c"}, "b")) == "b,c"


async def test_without_an_mcp_session_a_tool_with_state_refuses(notes_url: str) -> None:
    async with Client(notes_url) as agent:
        said = await agent.call_tool("shout", {"text": "a"})
        assert said.content[0].text == "A"  # type: ignore[union-attr]
        with pytest.raises(MCPError, match="keeps state"):
            await agent.call_tool("notes", {"text": "a"})


def test_an_mcp_backed_service_keeps_the_contract(
    notes_url: str, start: Callable[..., Service], tmp_path: Path
) -> None:
    service = start(f"mcp:{notes_url}")
    code, found, shown = check(service.address, folder=tmp_path)
    assert (code, found["failed"]) == (0, 0), shown


def test_a_server_by_others_keeps_the_contract(
    servers: Path, start: Callable[..., Service], tmp_path: Path
) -> None:
    """Each session of the suite's has a server of its own."""
    (tmp_path / "probes.toml").write_text(PROBES)
    names = 'mcp.tools=["echo", "get-tiny-image", "trigger-long-running-operation"]'
    service = start(f"mcp:{servers / 'mcp-server-everything'} stdio", "--set", names)
    probes = ("--probe", tmp_path / "probes.toml")
    code, found, shown = check(service.address, *probes, folder=tmp_path)
    assert (code, found["failed"]) == (0, 0), shown
    assert found["passed"] >= 80, shown
