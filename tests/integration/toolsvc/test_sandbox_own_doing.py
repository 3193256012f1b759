"""What foreign code does to its own process is a tool error: never a lost session, which would be
another attempt."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.support.swe import Source, call, edit, serving, submit
from tests.support.trajectory import Trajectory, said
from toolsvc.host.host import Host
from toolsvc.sandbox.config import MIB, Isolation, SandboxConfig
from toolsvc.sandbox.sandbox import Sandbox
from toolsvc.sandbox.session import Ending
from toolsvc.tools.bash.bash_tool import BashTool
from toolsvc.tools.python import PythonTool
from toolsvc.types import Result
from toolwright.types import ToolErrorKind

pytestmark = [pytest.mark.quick, pytest.mark.asyncio(loop_scope="module")]

SMALL = SandboxConfig(shards=1, ready=2, memory_bytes=192 * MIB, processes=24)
KILLS_ITSELF = """
import resource
resource.setrlimit(resource.RLIMIT_CPU, (1, 1))
while True: pass
"""
DIES_LATER = """
import os, threading, time
threading.Thread(target=lambda: (time.sleep(0.05), os._exit(3))).start()
"""
FROM_BASH = "prlimit --pid 1 --cpu=1:1; yes"
Until = Callable[[Callable[[], bool]], Awaitable[None]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def host() -> AsyncIterator[Host]:
    async with Host([PythonTool(sandbox=SMALL), BashTool(sandbox=SMALL)]) as running:
        yield running


async def python(session: Trajectory, code: str) -> Result:
    return await session.act(f"<python>{code}</python>")


def state_of(session: Trajectory) -> Any:
    """Of the tool that it calls."""
    return session.host._sessions.find(session.session_id).tools[session.tool].state


async def is_told_and_told_again(session: Trajectory, result: Result, again: str) -> None:
    """The next call of the turn may be on its way: it is no way out either, nor is the lease."""
    for told in (result, await session.act(again)):
        assert told.error is not None
        assert (told.error.kind, told.error.session_lost) == (ToolErrorKind.CRASHED, True)
    assert session.host.renew("tests", 600, [session.session_id]).lost == ()


@pytest.mark.parametrize("isolation", [None, Isolation.PER_SESSION])
async def test_a_limit_that_kills_is_a_crash(isolation: Isolation | None) -> None:
    async with Sandbox(SandboxConfig(shards=1, ready=1, isolation=isolation)) as sandbox:
        session = await sandbox.take()
        outcome = await session.run(KILLS_ITSELF, limit=20, keep=100)
        assert (outcome.ending, outcome.lost) == (Ending.CRASHED, True)
        assert "SIGKILL" in outcome.reason
        session.close()


async def test_the_cpu_time_of_a_process_is_bounded() -> None:
    config = SandboxConfig(shards=1, ready=1, memory_bytes=192 * MIB, cpu_seconds=1)
    async with Sandbox(config) as sandbox:
        session = await sandbox.take()
        outcome = await session.run("while True: pass", limit=20, keep=100)
        assert (outcome.ending, outcome.lost) == (Ending.CRASHED, True)
        session.close()


async def test_python_that_is_killed_answers_a_tool_error(host: Host) -> None:
    session = Trajectory(host, "python")
    result = await python(session, KILLS_ITSELF)
    assert "ended by SIGKILL" in said(result)
    await is_told_and_told_again(session, result, "<python>1</python>")


async def test_a_process_that_ends_between_calls_is_told_by_the_next(
    host: Host, until: Until
) -> None:
    session = Trajectory(host, "python")
    assert (await python(session, DIES_LATER)).error is None
    await until(lambda: state_of(session).process.gone is not None)
    result = await python(session, "1")
    assert "exit code 3" in said(result)
    await is_told_and_told_again(session, result, "<python>1</python>")


async def test_bash_whose_process_is_killed_answers_a_tool_error(host: Host) -> None:
    session = Trajectory(host, "bash")
    result = await session.act(f"<bash>{FROM_BASH}</bash>")
    assert "its process was ended by SIGKILL" in said(result)
    await is_told_and_told_again(session, result, "<bash>true</bash>")


async def test_a_box_that_its_policy_broke_ends_its_task(tmp_path: Path, until: Until) -> None:
    source = Source(tmp_path)
    async with serving(source) as running:
        edits, submits = (Trajectory(running, "swe", source.task()) for _ in range(2))
        for session in (edits, submits):
            await session.open()
            process = state_of(session).box._session
            await process.run('{"command": "true"}', limit=10, keep=1000)
            process.kill()
            await until(lambda process=process: process.gone is not None)
        await is_told_and_told_again(
            edits, await edit(edits, "view", "."), call("search", search_term="x", path=".")
        )
        assert (await submit(submits)).reward == 0.0
