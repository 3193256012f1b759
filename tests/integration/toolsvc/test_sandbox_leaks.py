"""After many sessions, half of them killed or abandoned in mid-call, nothing is left of them.

TOOLWRIGHT_LEAK_SESSIONS=10000 makes it the long run.
"""

import asyncio
import contextlib
import os
import random
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from toolsvc.sandbox.config import Backend, Isolation, SandboxConfig
from toolsvc.sandbox.sandbox import Sandbox
from toolsvc.sandbox.session import SandboxSession

pytestmark = pytest.mark.slow

SESSIONS = int(os.environ.get("TOOLWRIGHT_LEAK_SESSIONS", "300"))
AT_ONCE = 16
READY = 8

LEAVES_FILES = "open('left', 'w').write('x' * 100000)\nimport os\nos.makedirs('a/b/c')"
LEAVES_A_DAEMON = """
import os, time
if os.fork() == 0:
    os.setpgid(0, 0)
    if os.fork() == 0:
        while True: time.sleep(0.05)
    os._exit(0)
"""
GOES_ON = "import time\nopen('left', 'w').write('x')\nwhile True: time.sleep(0.01)"
ENDS_ITSELF = "import os\nos._exit(3)"


class Held(NamedTuple):
    """What this process and the machine hold because of a sandbox."""

    children: int
    descriptors: int
    mounts: int
    firejail: int


def held() -> Held:
    return Held(
        children=len(psutil.Process().children(recursive=True)),
        descriptors=len(os.listdir("/proc/self/fd")),
        mounts=len(Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()),
        firejail=sum(_registered(child) for child in psutil.Process().children(recursive=True)),
    )


def folders() -> set[str]:
    """On the host, of any sandbox on this machine."""
    return {
        f"{place}/{name}"
        for place in ("/tmp", "/var/tmp")
        for name in os.listdir(place)
        if name.startswith("toolsvc-")
    }


async def check_all_gone(before: Held, folders_before: set[str]) -> None:
    # The first use of a thread by the event loop keeps two descriptors and no more.
    after = held()
    grown = {name: count - before._asdict()[name] for name, count in after._asdict().items()}
    assert grown.pop("descriptors") <= 2
    assert all(more <= 0 for more in grown.values()), grown
    # Another service on this machine may be at its self-test; what it has there soon goes.
    for _ in range(300):
        if folders() <= folders_before:
            break
        await asyncio.sleep(0.1)
    assert folders() <= folders_before


def _registered(child: psutil.Process) -> bool:
    """Whether firejail has files of a child. Files of a dead firejail may have another's number."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return child.name() == "firejail" and any(
            os.path.exists(f"/run/firejail/{kind}/{child.pid}") for kind in ("sandbox", "name")
        )
    return False


class HeldInJails(NamedTuple):
    """The same of one jail: its sessions' processes, the rest of its zygote."""

    processes: int
    descriptors: int
    mounts: int
    folders: int


def zygotes() -> list[psutil.Process]:
    """The first Python of each jail."""
    found = []
    for process in psutil.Process().children(recursive=True):
        # Sessions and helpers come and go meanwhile.
        with contextlib.suppress(psutil.NoSuchProcess):
            parent = process.parent()
            jailed = parent is not None and parent.name() in ("firejail", "bwrap")
            if jailed and process.name().startswith("python"):
                found.append(process)
    return found


def held_in_jails(jails: list[psutil.Process]) -> list[HeldInJails]:
    """All but the number of processes is hidden from anybody but root, and told as 0."""
    if os.geteuid() != 0:
        return [HeldInJails(len(one.children(recursive=True)), 0, 0, 0) for one in jails]
    return [
        HeldInJails(
            processes=len(zygote.children(recursive=True)),
            descriptors=_descriptors(zygote.pid),
            mounts=len(
                Path(f"/proc/{zygote.pid}/mountinfo").read_text(encoding="utf-8").splitlines()
            ),
            folders=len(os.listdir(f"/proc/{zygote.pid}/root/tmp")),
        )
        for zygote in jails
    ]


def _descriptors(pid: int) -> int:
    """But for those that the watch opens when it first looks at a session, one for each."""
    count = 0
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            count += not os.readlink(f"/proc/{pid}/fd/{name}").endswith("/statm")
    return count


def together(found: list[HeldInJails]) -> tuple[int, ...]:
    """Over all jails, since sessions move between them."""
    return tuple(map(sum, zip(*found, strict=True)))


async def use_and_end(sandbox: Sandbox, way: int) -> None:
    session = await sandbox.take()
    try:
        match way:
            case 0:
                await session.run("print('hello world')", limit=30, keep=100)
            case 1:
                await session.run(LEAVES_FILES, limit=30, keep=100)
            case 2:
                await session.run(LEAVES_A_DAEMON, limit=30, keep=100)
            case 3:
                pass
            case 4:
                await in_mid_call(session, SandboxSession.kill)
            case 5:
                await in_mid_call(session, SandboxSession.close)
            case 6:
                await session.run(ENDS_ITSELF, limit=30, keep=100)
            case 7:
                call = asyncio.create_task(session.run(GOES_ON, limit=30, keep=100))
                await asyncio.sleep(0.01)
                call.cancel()
                await asyncio.wait([call])
    finally:
        session.close()


async def in_mid_call(session: SandboxSession, end: object) -> None:
    assert callable(end)
    call = asyncio.create_task(session.run(GOES_ON, limit=30, keep=100))
    await asyncio.sleep(0.01)
    end(session)
    outcome = await call
    assert outcome.lost


async def settled(sandbox: Sandbox, jails: list[psutil.Process]) -> None:
    """Every session that is not ready for the next taker has been buried and replaced."""
    async with asyncio.timeout(60):
        while True:
            fill = sandbox.statistics
            # But for the one process of each jail that forks.
            living = sum(found.processes - 1 for found in held_in_jails(jails))
            if fill.ready == fill.living == living == READY and not fill.creating:
                return
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("backend", [Backend.FIREJAIL, Backend.BUBBLEWRAP])
async def test_nothing_is_left_of_many_sessions(backend: Backend) -> None:
    before, old_folders = held(), folders()
    async with Sandbox(SandboxConfig(backend=backend, shards=2, ready=READY)) as sandbox:
        jails = zygotes()
        assert len(jails) == 2
        await settled(sandbox, jails)
        running, inside = held(), together(held_in_jails(jails))
        ways = [number % 8 for number in range(SESSIONS)]
        random.Random(0).shuffle(ways)
        for start in range(0, SESSIONS, AT_ONCE):
            batch = ways[start : start + AT_ONCE]
            await asyncio.gather(*(use_and_end(sandbox, way) for way in batch))
        await settled(sandbox, jails)
        # Each session that was taken in its turn has been replaced by one that is ready.
        after = held()
        # A firejail that starts tidies away what it takes for dead, a living one's entry too.
        assert after._replace(firejail=0) == running._replace(firejail=0)
        assert after.firejail <= running.firejail
        assert together(held_in_jails(jails)) == inside
    await check_all_gone(before, old_folders)


@pytest.mark.parametrize(
    "config",
    [
        {"isolation": Isolation.PER_SESSION},
        {"isolation": Isolation.PER_SESSION, "backend": Backend.BUBBLEWRAP},
        {"backend": Backend.NONE, "allow_unsandboxed": True},
    ],
    ids=["firejail", "bubblewrap", "none"],
)
async def test_nothing_is_left_of_jails_of_one_session_each(config: dict) -> None:
    before, old_folders = held(), folders()
    async with Sandbox(SandboxConfig(**config, ready=2)) as sandbox:
        for start in range(0, min(SESSIONS, 48), 8):
            await asyncio.gather(*(use_and_end(sandbox, (start + way) % 8) for way in range(8)))
    await check_all_gone(before, old_folders)
