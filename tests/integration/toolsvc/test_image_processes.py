"""Where images are decoded: processes that are bounded, confined, and ended."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import pytest_asyncio
from PIL import Image

from tests.integration.toolsvc.media import (
    quarters,
)
from tests.support.pictures import call, look, png
from tests.support.trajectory import Trajectory
from toolsvc.errors import Reason, Refused, StartError
from toolsvc.host.host import Host
from toolsvc.tools.image.tool import ImageOptions, ImageTool
from toolsvc.tools.image.workers import Workers
from toolsvc.types import Text
from toolwright.types import ToolErrorKind

MIB = 1 << 20
WORKER_MIB = 512
pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.filterwarnings("ignore:.*is not an async function:pytest.PytestWarning"),
]


def proc(process: psutil.Process, file: str) -> str:
    """What the kernel says of it."""
    return Path(f"/proc/{process.pid}/{file}").read_text()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def host() -> AsyncIterator[Host]:
    options = ImageOptions(workers=1, long_side=512, memory_mib=WORKER_MIB)
    async with Host([ImageTool(options)]) as running:
        yield running


def decoder() -> psutil.Process:
    """The newest of this process's own."""
    mine = (one for one in psutil.Process().children() if "decoding.worker" in str(one.cmdline()))
    return max(mine, key=psutil.Process.create_time)


async def test_want_of_memory_is_told_and_mends_itself(host: Host) -> None:
    """An image within the limit of pixels, for a process that was given too little."""
    options = ImageOptions(workers=1, memory_mib=256, pixels=400_000_000)
    async with Host([ImageTool(options)]) as small:
        media = png(Image.new("RGB", (12_000, 12_000)))
        session = Trajectory(small, "image", media=(media, png(quarters())))
        for _ in range(2):
            result = await session.act(call("rotate_image", angle=0))
            assert result.error is not None
            assert result.error.kind is ToolErrorKind.OUT_OF_MEMORY
            assert not result.error.session_lost
        assert (await look(session, target_image=2)).size == (400, 200)


async def at_rest(host: Host, until: Callable[..., Any]) -> psutil.Process:
    """The decoding process, stopped, so that the next call is in it for as long as a test likes."""
    await look(Trajectory(host, "image", media=(png(quarters()),)))
    process = decoder()
    process.send_signal(signal.SIGSTOP)
    await until(lambda: process.status() == psutil.STATUS_STOPPED)
    return process


async def in_it(host: Host, until: Callable[..., Any]) -> None:
    await until(lambda: host._tools["image"].figures()["decoders_busy"] == 1)


async def test_the_run_limit_and_cancelling_end_a_process_and_nothing_else(
    host: Host, until: Callable[..., Any]
) -> None:
    session = Trajectory(host, "image", media=(png(quarters()),))
    process = await at_rest(host, until)
    result = await session.act(call("rotate_image", angle=0), run_limit=0.2)
    assert result.error is not None
    assert result.error.kind is ToolErrorKind.TIMEOUT
    assert not process.is_running()
    process = await at_rest(host, until)
    asked = asyncio.create_task(session.act(call("rotate_image", angle=0)))
    await in_it(host, until)
    assert session.cancel()
    result = await asked
    assert result.error is not None
    assert result.error.kind is ToolErrorKind.CANCELLED
    with contextlib.suppress(psutil.NoSuchProcess):
        # It lives where the call was cancelled before it had reached it.
        process.send_signal(signal.SIGCONT)
    result = await session.act(call("rotate_image", angle=0))
    assert result.observation[0] == Text(text="Image 2: 400 x 200 pixels\n")


async def test_a_crash_is_the_files_and_a_kill_is_nobodys(
    host: Host, until: Callable[..., Any]
) -> None:
    session = Trajectory(host, "image", media=(png(quarters()),))
    process = await at_rest(host, until)
    asked = asyncio.create_task(session.act(call("rotate_image", angle=0)))
    await in_it(host, until)
    process.send_signal(signal.SIGSEGV)
    process.send_signal(signal.SIGCONT)
    result = await asked
    assert result.error is not None
    assert (result.error.kind, result.error.session_lost) == (ToolErrorKind.CRASHED, False)
    process = await at_rest(host, until)
    asked = asyncio.create_task(session.act(call("rotate_image", angle=0)))
    await in_it(host, until)
    process.kill()
    with pytest.raises(Refused) as failure:
        await asked
    assert failure.value.reason is Reason.BACKEND_DOWN
    assert failure.value.retry_after
    result = await session.act(call("rotate_image", angle=0))
    assert result.observation[0] == Text(text="Image 2: 400 x 200 pixels\n")


async def test_a_call_that_finds_no_process_free_has_not_run(
    host: Host, until: Callable[..., Any]
) -> None:
    process = await at_rest(host, until)
    first, second = (Trajectory(host, "image", media=(png(quarters()),)) for _ in range(2))
    asked = asyncio.create_task(first.act(call("rotate_image", angle=0)))
    await in_it(host, until)
    with pytest.raises(Refused) as failure:
        await second.act(call("rotate_image", angle=0), run_limit=0.2)
    assert failure.value.reason is Reason.QUEUE_LIMIT
    process.send_signal(signal.SIGCONT)
    assert (await asked).error is None
    assert (await second.act(call("rotate_image", angle=0))).error is None


async def test_a_decoding_process_is_confined_and_ends_with_its_service() -> None:
    workers = Workers(1, 256 * MIB)
    await workers.start()
    process = decoder()
    status = proc(process, "status")
    assert "NoNewPrivs:\t1\n" in status
    assert "Seccomp:\t2\n" in status
    assert f"CapEff:\t{0:016x}\n" in status
    assert f"Max address space         {256 * MIB}" in proc(process, "limits")
    assert "TOKEN" not in proc(process, "environ")
    assert "HOME" not in proc(process, "environ")
    await workers.close()
    assert not process.is_running()


async def test_no_process_can_be_had_with_too_little_memory() -> None:
    with pytest.raises(StartError, match="memory_mib"):
        await Workers(1, 48 * MIB).start()
