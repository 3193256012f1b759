"""OpenEnv, both ways, with the published package: its server as our tool, ours as its server."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.support.hosts import calling, opening, refused, said
from tests.support.net import free_port
from toolsvc.errors import Reason, Refused, StartError
from toolsvc.host.host import Host
from toolsvc.sandbox.config import SandboxConfig
from toolsvc.sources.openenv.source import OpenEnvOptions, OpenEnvSource
from toolsvc.types import Recorded
from toolwright.types import ToolErrorKind

ROOT = Path(__file__).resolve().parents[3]
WORLD = ROOT / "tests/support/openenv_world.py"
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
    await asyncio.sleep(12)
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
