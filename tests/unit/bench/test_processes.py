"""Processes: nothing stays behind, and a failure is one clear message."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from bench.errors import NotReady, ProcessFailed
from bench.processes import Command, Processes
from tests.support.waiting import blocks

SLEEPS = ("-c", "import time; print('here', flush=True); time.sleep(100)")
DEAF = (
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "print('here', flush=True); time.sleep(100)",
)


def python(name: str, *argv: str, grace_s: float = 5.0) -> Command:
    return Command(name=name, argv=(sys.executable, *argv), grace_s=grace_s)


def gone(pid: int) -> bool:
    return not psutil.pid_exists(pid)


def said(log: Path) -> bool:
    return "here" in log.read_text()


async def test_leaving_ends_what_was_started(tmp_path: Path) -> None:
    async with Processes(tmp_path) as processes:
        one = await processes.start(python("one", *SLEEPS))
        two = await processes.start(python("two", *SLEEPS))
        assert os.getpgid(one.pid) == one.pid
        assert one.alive
    assert gone(one.pid)
    assert gone(two.pid)


async def test_a_process_that_ignores_sigterm_is_killed(tmp_path: Path, until: Any) -> None:
    async with Processes(tmp_path) as processes:
        deaf = await processes.start(python("deaf", *DEAF, grace_s=0.2))
        await until(lambda: said(deaf.log))
    assert gone(deaf.pid)
    assert await deaf.wait() == -signal.SIGKILL


async def test_grandchildren_that_left_the_group_are_ended(tmp_path: Path) -> None:
    code = textwrap.dedent("""
        import subprocess, sys
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"],
                                 start_new_session=True)
        print(child.pid, "here", flush=True)
    """)
    async with Processes(tmp_path) as processes:
        await processes.run(python("parent", "-c", code))
        stray = int((tmp_path / "parent.log").read_text().split()[0])
        assert not gone(stray)
    assert gone(stray)


async def test_a_service_that_dies_at_once_gives_the_tail_of_its_log(tmp_path: Path) -> None:
    code = "print('line one', flush=True); raise SystemExit('port 1 is taken')"
    with pytest.raises(ProcessFailed) as caught:
        async with Processes(tmp_path) as processes:
            other = await processes.start(python("other", *SLEEPS))
            await processes.start(python("engine", "-c", code))
            await processes.while_alive(asyncio.sleep(60))
    message = str(caught.value)
    assert message.startswith("engine ended with exit code 1")
    assert str(tmp_path / "engine.log") in message
    assert message.endswith("    port 1 is taken")
    assert gone(other.pid)


async def test_a_killed_service_is_named_by_its_signal(tmp_path: Path) -> None:
    with pytest.raises(ProcessFailed, match="one was ended by SIGKILL"):
        async with Processes(tmp_path) as processes:
            one = await processes.start(python("one", *SLEEPS))
            os.kill(one.pid, signal.SIGKILL)
            await processes.while_alive(asyncio.sleep(60))


async def test_a_job_that_fails(tmp_path: Path) -> None:
    async with Processes(tmp_path) as processes:
        assert await processes.run(python("good", "-c", "pass")) < 30
        with pytest.raises(ProcessFailed, match="bad ended with exit code 3"):
            await processes.run(python("bad", "-c", "raise SystemExit(3)"))


async def test_a_stopped_service_is_no_failure(tmp_path: Path) -> None:
    async with Processes(tmp_path) as processes:
        one = await processes.start(python("one", *SLEEPS))
        await processes.stop(one)
        assert gone(one.pid)
        assert await processes.while_alive(asyncio.sleep(0.05, "done")) == "done"


async def test_a_service_that_never_answers(tmp_path: Path, until: Any) -> None:
    async with Processes(tmp_path) as processes:
        one = await processes.start(python("one", *SLEEPS))
        await until(lambda: said(one.log))
        with pytest.raises(NotReady, match=r"one did not answer within 0 s[\s\S]*here"):
            await processes.until_ready(one, asyncio.sleep(60), 0.05)


async def test_the_failure_of_the_work_is_its_own(tmp_path: Path) -> None:
    async def work() -> None:
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        async with Processes(tmp_path) as processes:
            await processes.start(python("one", *SLEEPS))
            await processes.while_alive(work())


PARENT = textwrap.dedent("""
    import asyncio, sys
    from pathlib import Path
    from bench.demo import __main__ as main, session
    from bench.processes import Command

    class Course:
        def __init__(self, options, processes, screen):
            self.processes = processes

        async def run(self):
            for name, code in (("plain", PLAIN), ("deaf", DEAF)):
                argv = (sys.executable, "-c", code)
                await self.processes.start(Command(name=name, argv=argv, grace_s=GRACE))
            await self.processes.while_alive(asyncio.sleep(60))

    session.Course = Course
    main.app()
""")


@pytest.mark.parametrize(
    ("number", "twice", "code"),
    [(signal.SIGINT, False, 130), (signal.SIGTERM, False, 143), (signal.SIGINT, True, 130)],
)
def test_a_signal_stops_everything(
    tmp_path: Path, number: signal.Signals, twice: bool, code: int
) -> None:
    grace = 60.0 if twice else 0.3
    names = f"PLAIN, DEAF, GRACE = {SLEEPS[1]!r}, {DEAF[1]!r}, {grace}\n"
    folder = tmp_path / "demo"
    parent = subprocess.Popen(
        [sys.executable, "-c", names + PARENT, "--folder", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    children = _children(parent.pid, 2, folder / "logs")
    parent.send_signal(number)
    if twice:
        blocks(0.5, "the first signal is being answered")
        parent.send_signal(number)
    output, _ = parent.communicate(timeout=30)
    assert parent.returncode == code, output
    assert f"stopped by {number.name}; no process is left" in output
    assert all(gone(child) for child in children)


def test_a_killed_demonstration_takes_its_processes_along(tmp_path: Path) -> None:
    names = f"PLAIN, DEAF, GRACE = {SLEEPS[1]!r}, {SLEEPS[1]!r}, 1.0\n"
    folder = tmp_path / "demo"
    parent = subprocess.Popen(
        [sys.executable, "-c", names + PARENT, "--folder", str(folder)], stdout=subprocess.PIPE
    )
    children = _children(parent.pid, 2, folder / "logs")
    parent.kill()
    parent.communicate(timeout=30)
    deadline = time.monotonic() + 10
    while not all(gone(child) for child in children):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _children(parent: int, count: int, logs: Path) -> list[int]:
    """Pids of the processes below `parent`, once each has spoken."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        spoken = [log for log in logs.glob("*.log") if said(log)]
        if len(spoken) == count:
            return [child.pid for child in psutil.Process(parent).children(recursive=True)]
        time.sleep(0.05)
    raise AssertionError("the processes did not start")
