"""Where images are decoded: what the policy reads of what happens to its process."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
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
from toolsvc.confined.errors import InputFailed, InputFault
from toolsvc.confined.pool import Jobs
from toolsvc.errors import Reason, Refused
from toolsvc.host.host import Host
from toolsvc.tools.image.image_tool import ImageOptions, ImageTool
from toolsvc.types import Text
from toolwright.types import ToolErrorKind

WORKER_MIB = 512
pytestmark = [pytest.mark.quick, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def host() -> AsyncIterator[Host]:
    options = ImageOptions(workers=1, long_side=512, memory_mib=WORKER_MIB)
    async with Host([ImageTool(options)]) as running:
        yield running


def nursery() -> psutil.Process:
    """The newest of this process's own; its children decode."""
    mine = (one for one in psutil.Process().children() if "decoding.parser" in str(one.cmdline()))
    return max(mine, key=psutil.Process.create_time)


async def test_want_of_memory_is_told_and_mends_itself(host: Host) -> None:
    """An image within the limit of pixels, for a process that was given too little."""
    options = ImageOptions(workers=1, memory_mib=256, pixels=400_000_000)
    async with Host([ImageTool(options)]) as small:
        media = png(Image.new("RGB", (12_000, 12_000)))
        session = Trajectory(small, "image", media=(media, png(quarters())))
        for _ in range(2):
            result = await session.act(call("rotate_image", angle=0))
            assert result.error.kind is ToolErrorKind.OUT_OF_MEMORY
            assert not result.error.session_lost
        assert (await look(session, target_image=2)).size == (400, 200)


async def at_rest(until: Callable[..., Any]) -> psutil.Process:
    """The nursery, stopped, so that a call waits for it for as long as a test likes."""
    process = nursery()
    process.send_signal(signal.SIGSTOP)
    await until(lambda: process.status() == psutil.STATUS_STOPPED)
    return process


def busy(host: Host) -> float:
    return host._tools["image"].figures()["confined_jobs_busy"]


async def in_it(host: Host, until: Callable[..., Any], before: float) -> None:
    """Until a job more than `before` was sent."""
    await until(lambda: jobs(host) > before)
    await asyncio.sleep(0)


def jobs(host: Host) -> float:
    return host._tools["image"].figures()["confined_jobs_total"]


async def test_the_run_limit_and_cancelling_end_a_call_and_nothing_else(
    host: Host, until: Callable[..., Any]
) -> None:
    session = Trajectory(host, "image", media=(png(quarters()),))
    process = await at_rest(until)
    result = await session.act(call("rotate_image", angle=0), run_limit=0.2)
    assert result.error.kind is ToolErrorKind.TIMEOUT
    process.send_signal(signal.SIGCONT)
    await until(lambda: not busy(host))
    await at_rest(until)
    sent = jobs(host)
    asked = asyncio.create_task(session.act(call("rotate_image", angle=0)))
    await in_it(host, until, sent)
    assert session.cancel()
    result = await asked
    assert result.error.kind is ToolErrorKind.CANCELLED
    process.send_signal(signal.SIGCONT)
    await until(lambda: not busy(host))
    result = await session.act(call("rotate_image", angle=0))
    assert result.observation[0] == Text(text="Image 2: 400 x 200 pixels\n")


async def test_a_lost_nursery_is_nobodys_doing(host: Host, until: Callable[..., Any]) -> None:
    session = Trajectory(host, "image", media=(png(quarters()),))
    process = await at_rest(until)
    sent = jobs(host)
    asked = asyncio.create_task(session.act(call("rotate_image", angle=0)))
    await in_it(host, until, sent)
    process.kill()
    with pytest.raises(Refused) as failure:
        await asked
    assert failure.value.reason is Reason.BACKEND_DOWN
    assert failure.value.retry_after
    result = await session.act(call("rotate_image", angle=0))
    assert result.observation[0] == Text(text="Image 2: 400 x 200 pixels\n")


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (InputFault.CRASH, ToolErrorKind.CRASHED),
        (InputFault.BROKEN, ToolErrorKind.CRASHED),
        (InputFault.TIME, ToolErrorKind.TIMEOUT),
        (InputFault.MEMORY, ToolErrorKind.OUT_OF_MEMORY),
    ],
)
async def test_what_a_file_does_to_its_process_is_a_tool_error(
    host: Host, fault: InputFault, kind: ToolErrorKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object, **__: object) -> bytes:
        raise InputFailed(fault)

    monkeypatch.setattr(Jobs, "run", fail)
    session = Trajectory(host, "image", media=(png(quarters()),))
    result = await session.act(call("rotate_image", angle=0))
    assert (result.error.kind, result.error.session_lost) == (kind, False)
