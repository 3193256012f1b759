"""MCP servers by others as tools, over real processes."""

import asyncio
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.integration.toolsvc.conftest import Service
from tests.support.checking import OF_CALLS, keeps_the_contract
from tests.support.hosts import opening
from tests.support.mcp_host import call, hosting, text_of
from toolsvc.errors import Reason, Refused, StartError
from toolsvc.sandbox.config import SandboxConfig
from toolsvc.sources.loader import load_tools
from toolsvc.types import Media
from toolwright.types import ToolErrorKind

pytestmark = pytest.mark.quick

SERVERS = Path(__file__).parents[2] / "support" / "mcp"
INSTALL = ("npm", "install", "--no-audit", "--no-fund", "--prefer-offline")
PROBES = """
[echo]
echo = { message = "@text@" }

[trigger-long-running-operation]
sleep = { duration = "@seconds@", steps = 1 }

[get-tiny-image]
media = {}
"""


@pytest.fixture(scope="module")
def servers() -> Path:
    """Folder of the servers' programs."""
    if shutil.which("npm") is None:
        pytest.fail("npm is missing: apt-get install nodejs npm")
    installed = subprocess.run(INSTALL, cwd=SERVERS, capture_output=True, text=True, timeout=180)
    assert installed.returncode == 0, installed.stderr
    return SERVERS / "node_modules" / ".bin"


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


async def test_a_call_ends_at_its_run_limit_and_is_a_crash_if_its_server_dies(
    servers: Path,
) -> None:
    async with hosting(f"mcp:{servers / 'mcp-server-everything'} stdio") as host:
        await call(host, "echo", {"message": "hello"})
        long = {"duration": 60, "steps": 60}
        late = await call(host, "trigger-long-running-operation", long, "c", run_limit=0.2)
        assert late.error.kind is ToolErrorKind.TIMEOUT
        assert text_of(await call(host, "echo", {"message": "on"}, "d")) == "Echo: on"
        running = asyncio.create_task(call(host, "trigger-long-running-operation", long, "b"))
        await asyncio.sleep(0)
        (child,) = psutil.Process().children()
        child.kill()
        result = await running
        assert (result.error.kind, result.error.session_lost) == (ToolErrorKind.CRASHED, True)


@pytest.mark.parametrize(
    ("word", "options", "says"),
    [
        ("mcp:nosuchcmd --stdio", {}, "no program .nosuchcmd. on PATH"),
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


@pytest.mark.slow
def test_a_server_by_others_keeps_the_contract(
    servers: Path, start: Callable[..., Service], tmp_path: Path
) -> None:
    """Each session of the suite's has a server of its own."""
    names = 'mcp.tools=["echo", "get-tiny-image", "trigger-long-running-operation"]'
    service = start(f"mcp:{servers / 'mcp-server-everything'} stdio", "--set", names)
    # Each session starts a program, so everything takes its time.
    words = (*OF_CALLS, "--pace", "3")
    keeps_the_contract(service.address, *words, folder=tmp_path, least=35, probes=PROBES)
