"""Processes: nothing stays behind, and a failure is one clear message."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from console.errors import NotReady, ProcessFailed
from console.machine.processes import Command, Processes
from console.machine.signals import TOGETHER_S
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
    return "here" in log.read_text(encoding="utf-8")


async def test_leaving_ends_what_was_started(tmp_path: Path) -> None:
    async with Processes(tmp_path) as processes:
        one = await processes.start(python("one", *SLEEPS))
        two = await processes.start(python("two", *SLEEPS))
        assert os.getpgid(one.pid) == one.pid
        assert one.alive
        assert processes.runs("one") and not processes.runs("three")
        await processes.stop(one)
        assert not processes.runs("one") and processes.runs("two")
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
        stray = int((tmp_path / "parent.log").read_text(encoding="utf-8").split()[0])
        assert not gone(stray)
    assert gone(stray)


async def test_what_was_there_before_is_spared_with_all_that_it_starts_later(
    tmp_path: Path,
) -> None:
    """Such as the trackers of a run, which have their last look after its processes."""
    source = (
        "import subprocess, sys; sys.stdin.readline();"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(100)']);"
        "print(child.pid, flush=True); child.wait()"
    )
    pipe = asyncio.subprocess.PIPE
    before = await asyncio.create_subprocess_exec(
        sys.executable, "-c", source, stdin=pipe, stdout=pipe
    )
    assert before.stdin is not None and before.stdout is not None
    async with Processes(tmp_path) as processes:
        before.stdin.write(b"now\n")
        child = int(await before.stdout.readline())
        processes.hurry()
        assert not gone(child)
    assert not gone(child)
    assert before.returncode is None
    psutil.Process(child).kill()
    assert await before.wait() == 0


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


async def test_a_job_that_fails(tmp_path: Path) -> None:
    async with Processes(tmp_path) as processes:
        done = await processes.run(python("good", "-c", "print('whole')"))
        assert done.seconds < 30
        assert done.said == ("whole",)
        with pytest.raises(ProcessFailed, match="bad ended with exit code 3"):
            await processes.run(python("bad", "-c", "raise SystemExit(3)"))


async def test_a_service_that_never_answers(tmp_path: Path, until: Any) -> None:
    async with Processes(tmp_path) as processes:
        one = await processes.start(python("one", *SLEEPS))
        await until(lambda: said(one.log))
        with pytest.raises(NotReady, match=r"one did not answer within 0 s[\s\S]*here"):
            await processes.until_ready(one, asyncio.sleep(60), 0.05)


async def test_a_service_that_has_answered_is_started_again_once(
    tmp_path: Path, until: Any
) -> None:
    noted: list[tuple[int, bool]] = []
    processes = Processes(tmp_path, lambda running: noted.append((running.pid, running.alive)))
    with pytest.raises(ProcessFailed, match="one was ended by SIGKILL"):
        async with processes:
            one = await processes.start(python("one", *SLEEPS), restarts=1)
            await processes.until_ready(one, asyncio.sleep(0), 10.0)
            first = one.pid
            os.kill(first, signal.SIGKILL)
            await until(lambda: one.pid != first and one.alive)
            os.kill(one.pid, signal.SIGKILL)
            await processes.while_alive(asyncio.sleep(60))
    assert noted == [(first, True), (first, False), (one.pid, True), (one.pid, False)]


async def test_after_the_hour_it_may_be_started_again_once_more(
    tmp_path: Path, until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.machine.processes.RESTARTS_WITHIN_S", 0.0)
    monkeypatch.setattr("console.machine.processes.RESTART_PAUSE_S", 0.0)
    async with Processes(tmp_path) as processes:
        one = await processes.start(python("one", *SLEEPS), restarts=1)
        await processes.until_ready(one, asyncio.sleep(0), 10.0)
        for _ in range(2):
            before = one.pid
            os.kill(before, signal.SIGKILL)
            await until(lambda before=before: one.pid != before and one.alive)


async def test_a_service_that_never_answered_is_not_started_again(tmp_path: Path) -> None:
    with pytest.raises(ProcessFailed, match="one ended with exit code 7"):
        async with Processes(tmp_path) as processes:
            await processes.start(python("one", "-c", "raise SystemExit(7)"), restarts=1)
            await processes.while_alive(asyncio.sleep(60))


async def test_an_exit_code_that_no_start_mends_is_the_last(tmp_path: Path) -> None:
    starts = []
    processes = Processes(tmp_path, lambda r: starts.append(r.pid) if r.alive else None)
    ends = "-c", "import time; time.sleep(0.5); raise SystemExit(5)"
    with pytest.raises(ProcessFailed, match="one ended with exit code 5"):
        async with processes:
            one = await processes.start(replace(python("one", *ends), final=(5,)), restarts=1)
            await processes.until_ready(one, asyncio.sleep(0), 10.0)
            await processes.while_alive(asyncio.sleep(60))
    assert len(starts) == 1


async def test_who_dies_while_all_are_stopped_is_not_started_again(
    tmp_path: Path, until: Any
) -> None:
    """The last one takes long to end; the first dies meanwhile."""
    ends_late = (
        "-c",
        "import signal, time; signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.5), exit()));"
        "print('here', flush=True); time.sleep(100)",
    )
    starts = []
    processes = Processes(tmp_path, lambda r: starts.append(r.pid) if r.alive else None)
    async with processes:
        one = await processes.start(python("one", *SLEEPS), restarts=1)
        late = await processes.start(python("late", *ends_late))
        await processes.until_ready(one, asyncio.sleep(0), 10.0)
        await until(lambda: said(one.log) and said(late.log))
        stopping = asyncio.create_task(processes.stop_all())
        os.kill(one.pid, signal.SIGKILL)
        await stopping
    assert starts == [one.pid, late.pid]


PARENT = textwrap.dedent("""
    import asyncio, sys
    from pathlib import Path
    from types import SimpleNamespace
    from console.course import session
    from console.course.notes import Notes
    from console.machine.processes import Command
    from console.record.course import CourseLog
    from console.watch.screen import Screen

    class Course:
        def __init__(self, setup, missing, makers, held, processes, notes, status):
            self.processes = processes

        async def run(self):
            for name, code in (("plain", PLAIN), ("deaf", DEAF)):
                argv = (sys.executable, "-c", code)
                await self.processes.start(Command(name=name, argv=argv, grace_s=GRACE))
            await self.processes.while_alive(asyncio.sleep(60))

    session.Course = Course
    session.planned = lambda setup: ()
    setup = SimpleNamespace(run=Path(sys.argv[1]), table=SimpleNamespace(track=()))
    screen = Screen()
    with CourseLog(setup.run) as log:
        ending = asyncio.run(session._course(setup, None, None, Notes(log, screen), screen))
    print(ending.sentence)
    sys.exit(ending.status)
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
    folder = tmp_path / "run"
    parent = subprocess.Popen(
        [sys.executable, "-c", names + PARENT, str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    children = _children(parent.pid, 2, folder / "console/logs")
    parent.send_signal(number)
    if twice:
        blocks(TOGETHER_S + 0.5, "a second signal sooner would be the same wish")
        parent.send_signal(number)
    output, _ = parent.communicate(timeout=30)
    assert parent.returncode == code, output
    assert f"stopped by {number.name}; the same command goes on" in output
    assert all(gone(child) for child in children)


def test_a_killed_console_takes_its_processes_along(tmp_path: Path) -> None:
    names = f"PLAIN, DEAF, GRACE = {SLEEPS[1]!r}, {SLEEPS[1]!r}, 1.0\n"
    folder = tmp_path / "run"
    parent = subprocess.Popen(
        [sys.executable, "-c", names + PARENT, str(folder)], stdout=subprocess.PIPE
    )
    children = _children(parent.pid, 2, folder / "console/logs")
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


async def test_what_cannot_be_started_is_one_sentence(tmp_path: Path) -> None:
    async with Processes(tmp_path) as processes:
        with pytest.raises(ProcessFailed, match="odd cannot be started: /no/such"):
            await processes.run(Command(name="odd", argv=("/no/such",), folder=tmp_path / "none"))
