"""OpenEnv, both ways, with the published package: its server as our tool, ours as its server."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.integration.toolsvc.conftest import running_service
from tests.support.hosts import calling, opening, refused, said
from tests.support.net import free_port
from tests.support.waiting import passes
from toolsvc.errors import Reason, Refused, StartError
from toolsvc.host.host import Host
from toolsvc.sandbox.config import SandboxConfig
from toolsvc.sources.openenv.source import OpenEnvOptions, OpenEnvSource
from toolsvc.types import Recorded
from toolwright.types import ToolErrorKind

ROOT = Path(__file__).resolve().parents[3]
WORLD = ROOT / "tests/support/openenv_world.py"
TOOLSVC = [sys.executable, "-c", "from toolsvc.cli import main; main()"]
START_SECONDS = 200.0
"""The package imports a web interface: that takes long on a busy machine."""

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


@pytest.fixture(scope="module")
def published() -> Path:
    """The environment that has the package; tests are skipped without it."""
    folder = ROOT / ".venv-gyms"
    if not (folder / "ready").exists():
        pytest.skip("there is no .venv-gyms: `make test-gyms` makes it")
    return folder


@contextmanager
def server(published: Path, most: int) -> Iterator[str]:
    """URL of a server of the package that plays at most so many episodes at once."""
    port = free_port()
    words = [str(published / "bin/python"), str(WORLD), str(port), str(most)]
    process = subprocess.Popen(words, env={"PATH": "/usr/bin:/bin"})
    try:
        wait_for(port, process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait(20)


def wait_for(port: int, process: subprocess.Popen[Any]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        with socket.socket() as probe:
            if not probe.connect_ex(("127.0.0.1", port)):
                return
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.fixture(scope="module")
def numbers(published: Path) -> Iterator[str]:
    with server(published, 8) as url:
        yield url


async def tool_of(url: str, **options: Any) -> Host:
    return Host(await OpenEnvSource.tools(url, OpenEnvOptions(**options), SandboxConfig()))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def host(numbers: str) -> AsyncIterator[Host]:
    async with await tool_of(numbers) as one:
        yield one


async def opened(host: Host, **metadata: Any) -> str:
    name = uuid.uuid4().hex
    await host.open(opening(name, metadata=metadata))
    return name


async def act(host: Host, session: str, arguments: dict[str, Any], **more: Any) -> Recorded:
    call_id = uuid.uuid4().hex
    answer = await host.call(
        calling(
            call_id, session=session, tool="act", arguments=arguments, digest=call_id.encode(),
            **more,
        )
    )  # fmt: skip
    assert isinstance(answer, Recorded)
    return answer


async def test_an_episode_is_played_to_its_reward(host: Host) -> None:
    (tool,) = host.list_tools()
    assert tool.arguments_schema["properties"] == {"number": {"type": "integer"}}
    session = await opened(host, seed=3, reset={"most": 4})
    assert said(await act(host, session, {})).startswith("guess a number from 1 to 4;")
    rewards = []
    for number in range(1, 5):
        answer = (await act(host, session, {"number": number})).result
        rewards.append(answer.reward)
        if answer.done:
            break
    assert rewards[-1] == 1.0 and set(rewards[:-1]) <= {0.0}
    over = (await act(host, session, {"number": 1})).result
    assert over.invalid_reason == "the episode is over"


async def test_seeds_name_episodes_and_their_digest_is_checked(host: Host) -> None:
    first = await act(host, await opened(host, seed=5), {})
    known = int(first.result.metrics["opening"])
    again = await opened(host, seed=5, opening=known)
    assert said(await act(host, again, {})) == said(first)
    with refused(Reason.INVALID_REQUEST):
        await act(host, await opened(host, seed=6, opening=known), {})
    with refused(Reason.INVALID_REQUEST) as failure:
        await act(host, await opened(host, reset={"most": 0}), {})
    assert "most must be at least 1" in failure.value.message


async def test_a_wrong_action_is_not_sent_and_an_error_is_read(host: Host) -> None:
    session = await opened(host, seed=1)
    wrong = (await act(host, session, {"number": "five"})).result
    assert not wrong.valid and "type integer" in wrong.invalid_reason
    cursed = (await act(host, session, {"number": 666})).result
    assert cursed.error is not None and cursed.error.kind is ToolErrorKind.EXCEPTION
    assert said_of(cursed) == "Numbers: the environment is cursed"
    assert (await act(host, session, {"number": 0})).result.reward == 0.0


def said_of(result: Any) -> str:
    return "".join(part.text for part in result.observation)


async def test_a_step_without_an_answer_loses_its_episode(host: Host) -> None:
    session = await opened(host)
    late = (await act(host, session, {"number": 777}, run_limit=0.5)).result
    assert late.error is not None
    assert (late.error.kind, late.error.session_lost) == (ToolErrorKind.TIMEOUT, True)
    flooded = (await act(host, await opened(host), {"number": 999})).result
    assert flooded.error is not None and flooded.error.session_lost
    after = (await act(host, session, {"number": 1})).result
    assert after.error is not None and after.error.session_lost


async def test_an_episode_outlives_a_silence_longer_than_the_servers_pings(host: Host) -> None:
    session = await opened(host)
    await act(host, session, {"number": 0})
    await passes(12.0, "the server pings every second, and waits 10 s for an answer")
    assert (await act(host, session, {"number": 0})).result.reward == 0.0


async def test_a_full_server_and_a_dead_one(published: Path) -> None:
    with server(published, 1) as url:
        async with await tool_of(url) as host:
            first = await opened(host)
            await act(host, first, {"number": 0})
            second = await opened(host)
            with refused(Reason.BACKEND_DOWN) as failure:
                await act(host, second, {"number": 0})
            assert "CAPACITY_REACHED" in failure.value.message
            await host.close(first)
            async with asyncio.timeout(30):  # the server ends the first episode in its own time
                while True:
                    try:
                        answer = await act(host, second, {"number": 0})
                    except Refused:  # still full
                        await asyncio.sleep(0.1)
                    else:
                        break
            assert answer.result.reward == 0.0
            died = (await act(host, second, {"number": 888})).result
            assert died.error is not None
            assert (died.error.kind, died.error.session_lost) == (ToolErrorKind.CRASHED, True)
            with refused(Reason.BACKEND_DOWN):
                await act(host, await opened(host), {"number": 0})
    with pytest.raises(StartError, match="cannot be reached"):
        await tool_of(url)


TOOLS = """
from random import Random

from toolsvc import InvalidAction, Media, Result, Tool, tool


class Guess(Tool):
    name = "guess"
    description = "Tells whether your guess is too low or too high."
    stateful = True

    def open(self, session):
        return Random(session.metadata.get("seed", 0)).randint(1, 9)

    def call(self, secret, call):
        if not call.arguments["text"].isdigit():
            raise InvalidAction("write a whole number")
        guess = int(call.arguments["text"])
        if guess == secret:
            return Result.of("right", done=True, reward=1.0)
        return Result.of("too low" if guess < secret else "too high", reward=0.0)


@tool(media=True)
def picture(size: int, name: str) -> Result:
    "Draws."
    return Result.of(name, Media(media_type="image/png", data=b"p" * size))
"""


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of our tools as an OpenEnv server."""
    folder = tmp_path_factory.mktemp("ours")
    (folder / "tools.py").write_text(TOOLS, encoding="utf-8")
    with running_service(folder / "service.log", str(folder / "tools.py")) as service:
        port = free_port()
        words = ("openenv", service.address, "--listen", f"127.0.0.1:{port}")
        process = subprocess.Popen([*TOOLSVC, *words])
        try:
            wait_for(port, process)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            assert process.wait(30) == 0


def test_openenvs_own_validator_passes_our_server(published: Path, ours: str) -> None:
    words = [str(published / "bin/openenv"), "validate", "--url", ours, "--json"]
    done = subprocess.run(
        [*words, "--timeout", "60"],
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
        env={"PATH": "/usr/bin:/bin", "HOME": "/tmp"},
    )
    report = json.loads(done.stdout)
    assert (done.returncode, report["passed"], report["mode"]) == (0, True, "simulation"), report
    assert report["summary"]["failed_criteria"] == []


CLIENTS = """
import asyncio, json, sys
from openenv.core.generic_client import GenericEnvClient
from openenv.core.mcp_client import MCPToolClient


async def main(url):
    found = {}
    async with GenericEnvClient(base_url=url) as env:
        first = await env.reset(seed=3)
        found["tools"] = [tool["name"] for tool in first.observation["tools"]]
        rewards, done, number = [], False, 0
        while not done:
            number += 1
            call = {"type": "call_tool", "tool_name": "guess", "arguments": {"text": str(number)}}
            seen = await env.step(call)
            rewards.append(seen.reward)
            done = seen.done
        found["rewards"], found["last"] = rewards, seen.observation["result"]
        found["state"] = (await env.state())["step_count"]
        wrong = {"type": "call_tool", "tool_name": "guess", "arguments": {"text": "x"}}
        found["invalid"] = (await env.step(wrong)).observation["error"]["error_type"]
        for bad in ({"type": "dance"}, {"tool_name": "nothing"}, {"action": "hello"}):
            try:
                await env.step(bad)
            except RuntimeError as error:
                found.setdefault("errors", []).append(str(error))
        large = {"tool_name": "picture", "arguments": {"size": 400000, "name": "big"}}
        shown = (await env.step(large)).observation["result"]
        found["picture"] = [shown[0]["text"], shown[1]["mimeType"], len(shown[1]["data"])]
    async with MCPToolClient(base_url=url) as env:
        found["schemas"] = [tool.input_schema["type"] for tool in await env.list_tools()]
        await env.reset(seed=3)
        found["called"] = await env.call_tool("guess", text=str(len(rewards)))
        try:
            await env.call_tool("nothing")
        except RuntimeError as error:
            found["missing"] = str(error)
    print(json.dumps(found))


asyncio.run(main(sys.argv[1]))
"""


def test_openenvs_own_clients_play_with_our_tools(
    published: Path, ours: str, tmp_path: Path
) -> None:
    (tmp_path / "clients.py").write_text(CLIENTS, encoding="utf-8")
    done = subprocess.run(
        [str(published / "bin/python"), str(tmp_path / "clients.py"), ours],
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
        env={"PATH": "/usr/bin:/bin", "HOME": "/tmp"},
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["tools"] == ["guess", "picture"]
    assert found["rewards"][-1] == 1.0 and set(found["rewards"][:-1]) <= {0.0}
    assert (found["last"], found["state"]) == ("right", len(found["rewards"]))
    assert found["invalid"] == "invalid_args"
    dance, nothing, hello = found["errors"]
    assert "write call_tool or list_tools" in dance
    assert "there is no tool 'nothing', only guess, picture" in nothing
    assert "there is no such field" in hello
    assert found["picture"] == ["big", "image/png", 533336]
    assert found["schemas"] == ["object", "object"]
    assert found["called"] == "right", "the seed of the reset names the episode"
    assert "there is no tool 'nothing'" in found["missing"]


async def test_our_own_source_plays_with_our_own_server(ours: str) -> None:
    async with await tool_of(ours) as host:
        session = await opened(host, seed=3)
        first = json.loads(said(await act(host, session, {})))
        assert [tool["name"] for tool in first["tools"]] == ["guess", "picture"]
        for number in range(1, 10):
            call = {"tool_name": "guess", "arguments": {"text": str(number)}}
            result = (await act(host, session, call)).result
            if result.done:
                break
        assert result.reward == 1.0
