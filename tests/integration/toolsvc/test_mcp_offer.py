"""Tools of ours as an MCP server, over real processes: what agents find, and who is let in."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_MODERN_VERSION

from tests.integration.toolsvc.conftest import Service, running_service
from tests.support.mcp_host import call, hosting, text_of
from tests.support.net import free_port
from tests.support.tls import Pem, make_pem
from toolsvc.errors import StartError
from toolwright.rpc.options import TOKEN_VARIABLE

pytestmark = pytest.mark.quick

TOOLSVC = [sys.executable, "-c", "from toolsvc.cli import main; main()"]
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


@contextmanager
def serving_notes(folder: Path, *more: str) -> Iterator[Service]:
    (folder / "notes.py").write_text(NOTES, encoding="utf-8")
    with running_service(folder / "errors.log", str(folder / "notes.py"), *more) as running:
        yield running


@pytest.fixture(scope="module")
def notes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One service for all tests: a session of one is not seen by another."""
    with serving_notes(tmp_path_factory.mktemp("notes")) as running:
        yield running


Offer = Callable[..., str]


@contextmanager
def offering() -> Iterator[Offer]:
    """Offers services over HTTP; each offer returns its URL on loopback."""
    processes: list[subprocess.Popen[bytes]] = []

    def offer_one(service: Service, *more: str, host: str = "127.0.0.1") -> str:
        port = free_port()
        words = ("mcp", service.address, "--http", f"{host}:{port}", *more)
        process = subprocess.Popen([*TOOLSVC, *words])
        processes.append(process)
        deadline = time.monotonic() + 60
        while True:
            with socket.socket() as probe:
                if not probe.connect_ex(("127.0.0.1", port)):
                    return f"http://127.0.0.1:{port}/mcp"
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)

    yield offer_one
    for process in processes:
        process.terminate()
    for process in processes:
        assert process.wait(20) == 0


@pytest.fixture
def offer() -> Iterator[Offer]:
    with offering() as offer_one:
        yield offer_one


@pytest.fixture(scope="module")
def notes_url(notes: Service) -> Iterator[str]:
    """URL at which the same tools are offered over HTTP."""
    with offering() as offer_one:
        yield offer_one(notes)


def offered(service: Service, *more: str) -> StdioServerParameters:
    words = [*TOOLSVC[1:], "mcp", service.address, *more]
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
    """The newest protocol has no sessions; a client that chooses itself does not get it."""
    async with Client(notes_url) as agent:
        assert agent.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS
    async with Client(notes_url, mode=LATEST_MODERN_VERSION) as agent:
        said = await agent.call_tool("shout", {"text": "a"})
        assert said.content[0].text == "A"  # type: ignore[union-attr]
        with pytest.raises(MCPError, match="keeps state"):
            await agent.call_tool("notes", {"text": "a"})


TOKEN = "a token of these tests"


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Pem:
    return make_pem(tmp_path_factory.mktemp("tls") / "pem")


@pytest.fixture(scope="module")
def guarded_service(pem: Pem, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The same tools behind TLS and the token."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(TOKEN_VARIABLE, TOKEN)
        with serving_notes(tmp_path_factory.mktemp("guarded"), *pem.options) as running:
            patch.undo()
            yield running


@pytest.fixture
def guarded(guarded_service: Service, monkeypatch: pytest.MonkeyPatch) -> Service:
    """The service, whose token every process that the test starts demands and sends."""
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    return guarded_service


def mcp_fails(*words: str, **environment: str) -> str:
    """The one sentence with which `toolsvc mcp` does not start."""
    done = subprocess.run(
        [*TOOLSVC, "mcp", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
    )
    assert done.returncode == 1, done
    (line,) = done.stderr.splitlines()
    assert line.startswith("toolsvc: ")
    return line


def test_a_service_that_lets_nobody_in_is_not_offered(guarded: Service, pem: Pem) -> None:
    words = (guarded.address, "--tls-ca", str(pem.authority))
    assert "wants another bearer token" in mcp_fails(*words, **{TOKEN_VARIABLE: "guessed"})
    assert "UNAVAILABLE" in mcp_fails(guarded.address)


async def test_over_http_the_token_is_asked_for(
    guarded: Service, pem: Pem, offer: Offer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = offer(guarded, "--tls-ca", str(pem.authority))
    async with hosting(f"mcp:{url}", token=TOKEN_VARIABLE) as host:
        assert text_of(await call(host, "notes", {"text": "a"})) == "a"
    monkeypatch.setenv("GUESSED", "a guess")
    for options in ({}, {"token": "GUESSED"}):
        with pytest.raises(StartError, match="cannot list the tools"):
            async with hosting(f"mcp:{url}", **options):
                pass
    async with httpx2.AsyncClient() as stranger:
        for headers in ({}, {"Authorization": "Bearer a guess"}, {"Authorization": "a token"}):
            answer = await stranger.post(url, headers=headers, json={})
            assert (answer.status_code, answer.text) == (401, "bearer token missing or wrong")


async def test_off_loopback_a_token_is_needed_and_no_page_of_another_site_is_answered(
    notes: Service, offer: Offer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There the SDK checks neither Host nor Origin."""
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    everywhere = f"0.0.0.0:{free_port()}"
    line = mcp_fails(notes.address, "--http", everywhere)
    assert everywhere in line
    assert TOKEN_VARIABLE in line
    url = offer(notes, "--insecure", host="0.0.0.0")
    async with Client(url) as agent:
        assert len((await agent.list_tools()).tools) == 2
    attacks = (
        ({"Host": "evil.example"}, 421),
        ({"Origin": "https://evil.example"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Content-Type": "text/plain"}, 415),
    )
    async with httpx2.AsyncClient() as stranger:
        for headers, status in attacks:
            answer = await stranger.post(url, headers=headers, json={})
            assert answer.status_code == status, headers
