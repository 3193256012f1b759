"""Many browser trajectories at once: what they take, and that all of it comes back."""

import asyncio
import os
import tempfile
from pathlib import Path

import psutil
import pytest

from tests.support.site import Site, site
from tests.support.surfer import Surfer, serving

pytestmark = pytest.mark.slow

TRAJECTORIES = int(os.environ.get("TOOLWRIGHT_BROWSER_TRAJECTORIES", "16"))
"""64 take minutes on two cores."""
WAIT_SECONDS = 300.0
"""In the queue, on a machine that does other things too."""


def family() -> set[int]:
    return {process.pid for process in psutil.Process().children(recursive=True)}


def left(folder: Path, made: set[Path]) -> list[Path]:
    """What browsers did not take away, of what they made in `folder` and beside."""
    return [*folder.iterdir(), *(socket for socket in made if socket.exists())]


def sockets(folder: Path) -> set[Path]:
    """Where Chromium of the profiles in `folder` keeps its socket: beside other runs' ones."""
    return {link.readlink().parent for link in folder.glob("*/SingletonSocket")}


async def travel(policy: Surfer, together: asyncio.Barrier) -> None:
    limits = {"queue_limit": WAIT_SECONDS, "run_limit": WAIT_SECONDS}
    first = await policy.act("navigate", limits=limits, url=policy.pages.url("/count"))
    assert first.error is None, first
    async with together:  # All have a page now.
        pass
    await policy.act("navigate", limits=limits, url=policy.pages.url("/count"))
    assert "Page: 2\n" in policy.seen


@pytest.mark.timeout(400)
async def test_many_trajectories_leave_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with site() as pages, tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)  # Chromium may have an account of its own
        monkeypatch.setenv("TMPDIR", folder)
        await crowd(pages, Path(folder))


async def crowd(pages: Site, folder: Path) -> None:
    nobody = family()
    async with serving(pages.address, navigation_seconds=WAIT_SECONDS) as host:
        async with Surfer(host, pages) as first:
            await first.go("/count")
        policies = [Surfer(host, pages) for _ in range(TRAJECTORIES)]
        together = asyncio.Barrier(TRAJECTORIES + 1)
        async with asyncio.TaskGroup() as group:
            for policy in policies:
                group.create_task(travel(policy, together))
            async with together:
                everybody = family() - nobody
                made = sockets(folder)
        assert made
        assert len(everybody) >= TRAJECTORIES
        async with asyncio.TaskGroup() as group:
            for policy in policies:
                group.create_task(policy.trajectory.close())
        figures = host._tools["browser"].figures()
        assert figures["browsers"] <= 1
        assert figures["browser_sessions"] == 0
    assert family() == nobody
    assert not left(folder, made)
