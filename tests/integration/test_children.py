"""Programs that a server starts, on its own event loop: what they get of it, and how they end."""

import asyncio
import json
import os
import signal
import sys
from typing import Any

import anyio
import pytest

from toolwright.process import loop

pytestmark = [
    pytest.mark.quick,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.filterwarnings("ignore:.*is not an async function:pytest.PytestWarning"),
]

PIPE, NULL = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
LISTS = "import json, os; print(json.dumps(os.listdir('/dev/fd')), flush=True)"
"""Of a program: its descriptors, the one that lists them among them."""


class Policy(asyncio.DefaultEventLoopPolicy):
    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        return loop.new_event_loop()


@pytest.fixture(scope="module")
def event_loop_policy() -> Policy:
    return Policy()


async def start(*command: str, **more: Any) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(*command, **more)


@pytest.mark.parametrize("stdin", [PIPE, NULL, None])
async def test_a_program_gets_its_three_descriptors_and_no_other(stdin: int | None) -> None:
    left, _ = os.pipe()
    os.set_inheritable(left, True)
    process = await start(sys.executable, "-c", LISTS, stdin=stdin, stdout=PIPE, stderr=PIPE)
    said, errors = await process.communicate()
    assert (sorted(json.loads(said)), errors, process.returncode) == (["0", "1", "2", "3"], b"", 0)


async def test_so_do_those_that_a_library_starts() -> None:
    """As the MCP client does."""
    process = await anyio.open_process([sys.executable, "-c", LISTS], start_new_session=True)
    async with process:
        assert process.stdout is not None
        assert sorted(json.loads(await process.stdout.receive())) == ["0", "1", "2", "3"]


async def test_an_output_ends_with_its_program_whatever_that_left_running() -> None:
    """What `conmon` does: it gives its standard streams up, and lives on."""
    command = "sleep 60 <&- >/dev/null 2>&1 & echo $!"
    process = await start("bash", "-c", command, stdin=PIPE, stdout=PIPE)
    async with asyncio.timeout(20):
        said, _ = await process.communicate()
    os.kill(int(said), signal.SIGKILL)


async def test_a_program_is_heard_told_and_ended() -> None:
    echo = await start("cat", stdin=PIPE, stdout=PIPE)
    assert echo.stdin is not None
    assert echo.stdout is not None
    large = bytes(1 << 20)
    assert (await echo.communicate(large))[0] == large
    assert await echo.wait() == 0
    sleeping = await start("sleep", "60")
    sleeping.kill()
    assert await sleeping.wait() == -signal.SIGKILL
    holding = await start("bash", "-c", "sleep 60 & echo $!", stdout=PIPE)
    assert holding.stdout is not None
    left = int(await holding.stdout.readline())
    async with asyncio.timeout(20):
        assert await holding.wait() == 0
    os.kill(left, signal.SIGKILL)
    with pytest.raises(FileNotFoundError):
        await start("/no/such/program", stdin=PIPE)
    shell = await asyncio.create_subprocess_shell("exit 3")
    assert await shell.wait() == 3


async def test_many_at_once_all_end() -> None:
    async def one(number: int) -> None:
        process = await start("bash", "-c", f"read x; exit {number}", stdin=PIPE)
        assert process.stdin is not None
        process.stdin.close()
        assert await process.wait() == number

    before = len(os.listdir("/dev/fd"))
    await asyncio.gather(*(one(number) for number in range(30)))
    await asyncio.sleep(0)
    assert len(os.listdir("/dev/fd")) <= before + 1
