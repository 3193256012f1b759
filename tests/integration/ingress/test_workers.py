"""`ingress serve --workers 2`: one that is killed takes its own connections, and no others."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from bench.ingress.scripted_engine import ScriptedEngine
from ingress import workers
from tests.support.agents import END
from tests.support.recipes import recipe_tables, write_recipe
from tests.support.waiting import PATIENCE, until
from toolwright.chat.tokenizer import ChatTokenizer
from toolwright.rpc.errors import ListenError

pytestmark = pytest.mark.slow

BODY = {"model": "policy", "messages": [{"role": "user", "content": "q"}]}


@asynccontextmanager
async def command(recipe: Path, *words: str) -> AsyncIterator[tuple[Process, str]]:
    """The command and its URL."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "ingress.cli", "serve", str(recipe), "--workers", "2", *words,
        stdout=PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        line = (await process.stdout.readline()).decode()
        yield process, next((word for word in line.split() if "http" in word), "")
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def health(session: aiohttp.ClientSession, url: str) -> int:
    """The worker at the session's connection."""
    async with session.get(f"{url}/health") as response:
        return int((await response.json())["pid"])


async def gone(handle: int) -> None:
    """Returns when the process of a pidfd has ended."""
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(handle, ended.set)
    await asyncio.wait_for(ended.wait(), PATIENCE)
    asyncio.get_running_loop().remove_reader(handle)
    os.close(handle)


@pytest.fixture
async def engine(policy_folder: Path) -> AsyncIterator[ScriptedEngine]:
    tokenizer = ChatTokenizer(policy_folder)
    ids = tokenizer.encode(f"Hello.{END}")
    async with ScriptedEngine(lambda _number, _choice: ids, ends={ids[-1]: END}) as found:
        yield found


@pytest.fixture
def recipe(tmp_path: Path, policy_folder: Path, engine: ScriptedEngine) -> Path:
    tables = recipe_tables(
        policy=policy_folder, sampler="http://127.0.0.1:9", tools={}, engine=engine.address
    )
    return write_recipe(tmp_path, tables)


async def test_a_killed_worker_takes_its_own_connections_alone(
    recipe: Path, engine: ScriptedEngine
) -> None:
    async with (
        command(recipe, "--listen", "127.0.0.1:0") as (process, url),
        AsyncExitStack() as stack,
    ):
        sessions: dict[int, aiohttp.ClientSession] = {}
        for _ in range(100):
            session = await stack.enter_async_context(aiohttp.ClientSession())
            sessions.setdefault(await health(session, url), session)
            if len(sessions) == 2:
                break
        (killed, broken), (kept, whole) = sessions.items()
        engine.gate.clear()
        chat = f"{url}/t/key/v1/chat/completions"
        calls = [asyncio.create_task(one.post(chat, json=BODY)) for one in (broken, whole)]
        await until(lambda: len(engine.calls) == 2, "both calls")
        handle = os.pidfd_open(killed)
        os.kill(killed, signal.SIGKILL)
        with pytest.raises(aiohttp.ClientError):
            await calls[0]
        await gone(handle)  # until then its socket may still get a connection
        assert not calls[1].done()
        engine.gate.set()
        async with await calls[1] as response:
            assert (await response.json())["choices"][0]["message"]["content"] == "Hello."
        async with broken.post(chat, json=BODY) as response:
            assert response.status == 200
        async with asyncio.timeout(PATIENCE):
            pids = {kept}
            while len(pids) < 2:
                async with aiohttp.ClientSession() as session:
                    pids.add(await health(session, url))
        assert killed not in pids
        process.terminate()
        assert await asyncio.wait_for(process.wait(), PATIENCE) == 0


async def test_workers_end_with_a_command_that_is_killed(recipe: Path) -> None:
    async with command(recipe, "--listen", "127.0.0.1:0") as (process, url):
        async with aiohttp.ClientSession() as session:
            worker = os.pidfd_open(await health(session, url))
        process.kill()
        await gone(worker)


async def test_a_worker_that_cannot_start_ends_the_command(recipe: Path) -> None:
    async with command(recipe, "--listen", "127.0.0.1:0", "--set", "policy.model=nothing") as (
        process,
        _,
    ):
        assert await asyncio.wait_for(process.wait(), PATIENCE) == 1


async def test_an_address_that_other_workers_share_is_taken() -> None:
    with workers.reserved("127.0.0.1:0") as bound:
        host, port = bound.split(":")
        server = await asyncio.start_server(lambda _r, _w: None, host, int(port), reuse_port=True)
        async with server:
            with pytest.raises(ListenError, match="stop what holds it"), workers.reserved(bound):
                pass
