"""How the sandbox starts, breaks and ends."""

import asyncio
import contextlib
import errno
import os
import pwd
import resource
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import structlog

import toolsvc.sandbox.sandbox
import toolsvc.sandbox.shard
from tests.support.waiting import blocks, passes
from toolsvc.sandbox.config import Backend, Isolation, SandboxConfig
from toolsvc.sandbox.errors import SandboxDown, SandboxUnavailable
from toolsvc.sandbox.jail import Jail, start_jail
from toolsvc.sandbox.plan import plan_jail
from toolsvc.sandbox.sandbox import Sandbox, make_pool
from toolsvc.sandbox.selftest import examine
from toolsvc.sandbox.session import Ending

pytestmark = pytest.mark.quick

SMALL: dict[str, Any] = {"shards": 1, "ready": 2, "processes": 16}
REPOSITORY = Path(toolsvc.sandbox.sandbox.__file__).parents[2]


async def test_the_best_level_that_this_kernel_allows_is_taken() -> None:
    async with Sandbox(SandboxConfig(**SMALL)) as sandbox:
        assert sandbox.level in Isolation
    async with Sandbox(SandboxConfig(**SMALL, landlock_abi=3)) as sandbox:
        assert sandbox.level is Isolation.COMPAT
    async with Sandbox(SandboxConfig(**SMALL, user_namespaces=False)) as sandbox:
        assert sandbox.level is Isolation.PER_SESSION


async def faults_of(landlock_abi: int, **changed: Any) -> list[str]:
    """Faults that the self-test finds in jails with these settings."""
    weak = SandboxConfig(**{**SMALL, **changed})
    pool = make_pool(plan_jail(weak), weak, Isolation.FULL, landlock_abi)
    try:
        await pool.start()
        return await examine(pool, SandboxConfig(**SMALL), Isolation.FULL)
    finally:
        await pool.close()


async def test_the_self_test_finds_what_a_missing_landlock_lets_through() -> None:
    assert any("could list" in fault for fault in await faults_of(0))


async def test_the_self_test_finds_a_limit_that_does_not_hold() -> None:
    assert any("fork over the limit" in fault for fault in await faults_of(7, processes=40))


async def test_no_level_that_holds_means_no_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        toolsvc.sandbox.sandbox, "possible_levels", lambda *_: [(Isolation.FULL, 0)]
    )
    with pytest.raises(SandboxUnavailable) as failure:
        await Sandbox(SandboxConfig(**SMALL)).start()
    assert "no isolation level holds" in str(failure.value)
    assert "sysctl" in str(failure.value)
    assert not [p for p in psutil.Process().children(recursive=True) if p.name() == "firejail"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"isolation": Isolation.FULL, "landlock_abi": 2}, "Landlock ABI 6"),
        ({"python": "/nowhere/python"}, "/nowhere/python"),
        ({"user": "no-such-account"}, "no-such-account"),
    ],
)
async def test_a_setting_that_cannot_work_is_named(change: dict[str, Any], says: str) -> None:
    with pytest.raises(SandboxUnavailable, match=says):
        await Sandbox(SandboxConfig(**change)).start()


def zygotes() -> list[psutil.Process]:
    """Of all jails, one each."""
    found = []
    for process in psutil.Process().children(recursive=True):
        # Sessions come and go meanwhile.
        with contextlib.suppress(psutil.NoSuchProcess):
            jailed = (process.parent() or process).name() == "firejail"
            if jailed and process.name().startswith("python"):
                found.append(process)
    return found


def forker_of(zygote: psutil.Process) -> psutil.Process:
    """The process beside a shared jail's zygote that forks; it came before all sessions."""
    return min(zygote.children(), key=lambda child: (child.create_time(), child.pid))


@pytest.mark.parametrize("dies", ["zygote", "forker"])
async def test_a_jail_that_dies_loses_its_sessions_and_is_replaced(dies: str) -> None:
    async with Sandbox(SandboxConfig(**SMALL)) as sandbox:
        session = await sandbox.take()
        call = asyncio.create_task(session.run("while True: pass", limit=30, keep=100))
        await passes(0.1, "the call runs")
        for zygote in zygotes():
            (zygote if dies == "zygote" else forker_of(zygote)).kill()
        outcome = await asyncio.wait_for(call, 10)
        assert outcome.lost
        assert outcome.ending is Ending.TAKEN_DOWN
        session.close()
        async with asyncio.timeout(20):
            # One that was ready in the dead jail may be handed out before its death is known.
            while True:
                fresh = await sandbox.take()
                outcome = await fresh.run("1 + 1", limit=5, keep=100)
                fresh.close()
                if not outcome.lost:
                    break
        assert outcome.output == "2\n"


@pytest.mark.parametrize("failures", [0, 2])
async def test_jails_that_fall_together_are_all_replaced(
    failures: int,
    monkeypatch: pytest.MonkeyPatch,
    until: Callable[[Callable[[], bool]], Awaitable[None]],
) -> None:
    """Also where the machine has no room for new ones at first."""
    async with Sandbox(SandboxConfig(**{**SMALL, "shards": 2})) as sandbox:
        await until(lambda: sandbox.statistics.ready == SMALL["ready"])
        left = [OSError(errno.ENOMEM, "no memory")] * failures

        def start(*arguments: Any) -> Jail:
            if left:
                raise left.pop()
            return start_jail(*arguments)

        monkeypatch.setattr(toolsvc.sandbox.shard, "start_jail", start)
        fallen = zygotes()
        assert len(fallen) == 2
        for zygote in fallen:
            zygote.kill()
        await until(lambda: sandbox.statistics.replaced == 2)
        await until(lambda: sandbox.statistics.ready == SMALL["ready"])
        assert (sandbox.statistics.shards, len(zygotes()), left) == (2, 2, [])
        session = await sandbox.take()
        assert (await session.run("1 + 1", limit=5, keep=100)).output == "2\n"
        session.close()


async def test_a_jail_that_makes_no_sessions_is_replaced_and_its_sessions_go_on(
    until: Callable[[Callable[[], bool]], Awaitable[None]],
) -> None:
    async with Sandbox(SandboxConfig(**SMALL)) as sandbox:
        await until(lambda: sandbox.statistics.ready == SMALL["ready"])
        session = await sandbox.take()
        await session.run("kept = 41", limit=5, keep=100)
        (zygote,) = zygotes()
        resource.prlimit(forker_of(zygote).pid, resource.RLIMIT_NPROC, (1, 1))
        for _ in range(SMALL["ready"] + 1):
            with contextlib.suppress(SandboxDown):  # none ready, none replaced yet
                (await sandbox.take()).close()
            await until(lambda: sandbox.statistics.replaced == 1 or not sandbox.statistics.creating)
        await until(lambda: sandbox.statistics.replaced == 1)
        fresh = await sandbox.take()
        assert (await fresh.run("1 + 1", limit=5, keep=100)).output == "2\n"
        assert (await session.run("kept", limit=5, keep=100)).output == "41\n"
        fresh.close()
        # The old jail ends with the last session in it.
        assert len(zygotes()) == 2
        session.close()
        await until(lambda: not zygote.is_running())


async def test_the_process_that_forks_holds_nothing_of_sessions() -> None:
    """Else a session would cost the more, the more there are."""
    if os.geteuid() != 0:
        pytest.skip("what a process holds open is hidden from all but root")
    async with Sandbox(SandboxConfig(**SMALL)) as sandbox:
        (zygote,) = zygotes()
        folder = f"/proc/{forker_of(zygote).pid}/fd"
        before = len(os.listdir(folder))
        sessions = [await sandbox.take() for _ in range(20)]
        assert len(os.listdir(f"/proc/{zygote.pid}/fd")) >= 2 * len(sessions)
        assert len(os.listdir(folder)) <= before + 3  # those of one that is being made
        for session in sessions:
            session.close()


HOST = """
    import asyncio, os, sys
    sys.path.insert(0, {path!r})
    from toolsvc.sandbox.config import Backend, SandboxConfig
    from toolsvc.sandbox.sandbox import Sandbox

    async def main():
        async with Sandbox(SandboxConfig(shards=2, ready=4, {config})) as sandbox:
            session = await sandbox.take()
            print(str(sandbox.level), (await session.run("6 * 7", limit=5, keep=10)).output.strip())
            sys.stdout.flush()
            await session.run({code!r}, limit=60, keep=10)

    asyncio.run(main())
"""
SPREADS = """
import os, time
for _ in range(3):
    if os.fork() == 0:
        os.setpgid(0, 0)
        while True: time.sleep(0.01)
while True: pass
"""


CONTAINER = """
    import asyncio, sys
    sys.path.insert(0, {path!r})
    import toolwright.jail.firejail
    from toolsvc.sandbox.config import SandboxConfig
    from toolsvc.sandbox.errors import SandboxUnavailable
    from toolsvc.sandbox.sandbox import Sandbox

    if {blind!r}:
        toolwright.jail.firejail._in_container = lambda: False

    async def main():
        try:
            async with Sandbox(SandboxConfig(shards=1, ready=1, processes=16)) as sandbox:
                print("runs at level", sandbox.level)
        except SandboxUnavailable as error:
            print("refused:", error)

    asyncio.run(main())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make the pid namespace")
@pytest.mark.parametrize(
    ("blind", "says"),
    [(False, "runs at level"), (True, "without a sandbox around it")],
)
def test_in_a_pid_namespace_it_is_confined_or_refuses(blind: bool, says: str) -> None:
    """There firejail runs programs bare, with exit code 0, unless it is told of the container."""
    script = textwrap.dedent(CONTAINER.format(path=str(REPOSITORY), blind=blind))
    done = subprocess.run(
        ["unshare", "-pmf", "--mount-proc", sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert says in done.stdout.splitlines()[-1]


def test_kill_9_of_the_host_leaves_nothing() -> None:
    script = textwrap.dedent(HOST.format(path=str(REPOSITORY), code=SPREADS, config=""))
    folders_before = set(os.listdir("/tmp"))
    host = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert host.stdout is not None
    assert any(line.endswith(" 42\n") for line in host.stdout)
    blocks(0.3, "every session has begun")
    below = psutil.Process(host.pid).children(recursive=True)
    assert len(below) >= 2 * 3 + 4 + 3
    host.send_signal(signal.SIGKILL)
    host.wait(5)
    alive = psutil.wait_procs(below, timeout=10)[1]
    assert not alive
    new = {name for name in set(os.listdir("/tmp")) - folders_before if "toolsvc" in name}
    assert new <= _held_folders()  # by hosts of other tests


def _held_folders() -> set[str]:
    """Names of the folders in /tmp that a process has open."""
    held = set()
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            held.add(Path(os.readlink(link)))
    return {path.name for path in held if path.parent == Path("/tmp")}


@pytest.mark.parametrize("backend", Backend)
def test_it_works_as_an_ordinary_user(backend: Backend) -> None:
    """As root: in a copy that an ordinary user can read, with the system's Python."""
    command = [sys.executable]
    library = REPOSITORY
    if os.geteuid() == 0:
        library = Path("/tmp") / f"toolsvc-test-{os.getpid()}"
        shutil.copytree(REPOSITORY / "toolsvc" / "sandbox", library / "toolsvc" / "sandbox")
        (library / "toolsvc" / "__init__.py").touch()
        process = Path("toolwright") / "process"
        (library / process).mkdir(parents=True)
        for name in ("backoff.py", "sockets.py"):  # all that it imports from there
            shutil.copy(REPOSITORY / "proto" / process / name, library / process / name)
        jail = Path("toolwright") / "jail"
        shutil.copytree(REPOSITORY / "proto" / jail, library / jail)
        shutil.copytree(Path(structlog.__file__).parent, library / "structlog")
        for path in [library, *library.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
        user = pwd.getpwnam("games")
        command = [
            *("setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"),
            *("/usr/bin/python3", "-B"),
        ]
    config = f"backend=Backend({str(backend)!r}), allow_unsandboxed={backend is Backend.NONE}"
    script = textwrap.dedent(HOST.format(path=str(library), code="pass", config=config))
    try:
        done = subprocess.run(
            [*command, "-c", script], capture_output=True, text=True, timeout=60, cwd="/"
        )
    finally:
        if library != REPOSITORY:
            shutil.rmtree(library)
    assert done.returncode == 0, done.stderr
    level = Isolation.NONE if backend is Backend.NONE else Isolation.FULL
    assert done.stdout.splitlines()[-1] == f"{level} 42"
