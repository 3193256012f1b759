"""A signal while `toolwright run` has no processes: one sentence and its code, no traceback."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from rich.console import Console

from console.course import session
from console.course.notes import Notes
from console.course.session import _Signals
from console.machine.processes import Processes
from console.machine.signals import SIGNALS
from console.record.course import CourseLog
from console.watch.screen import Screen


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_signal_while_imports_and_recipe_are_read(tmp_path: Path, number: int) -> None:
    code = (
        "import os, signal, sys, threading\n"
        "from console.commands.run import run\n"
        "from console.course import session\n"
        f"session.set_up = lambda options: os.kill(os.getpid(), {int(number)})\n"
        "run(tmp := __import__('pathlib').Path(sys.argv[1]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 128 + number, done.stderr
    assert done.stderr == (
        f"toolwright: stopped by {signal.Signals(number).name}; the same command goes on\n"
    )


async def test_a_terminal_that_closes_tells_twice_and_means_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    processes = Processes(tmp_path / "logs")
    with CourseLog(tmp_path) as log:
        notes = Notes(log, Screen(Console(file=io.StringIO())))

        async def work() -> int | None:
            with _Signals(processes, notes) as signals:
                try:
                    os.kill(os.getpid(), signal.SIGTERM)
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    os.kill(os.getpid(), signal.SIGTERM)
                    with suppress(TimeoutError):
                        await asyncio.wait_for(processes.hurried.wait(), 0.1)
                    assert not processes.hurried.is_set()
                    monkeypatch.setattr(session, "TOGETHER_S", 0.0)
                    os.kill(os.getpid(), signal.SIGTERM)
                    await asyncio.wait_for(processes.hurried.wait(), 10)
            return signals.first

        try:
            assert await asyncio.create_task(work()) == signal.SIGTERM
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def test_what_nohup_ignores_stays_ignored() -> None:
    code = (
        "import os, signal\n"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "from console.machine.signals import no_traceback\n"
        "with no_traceback():\n"
        "    os.kill(os.getpid(), signal.SIGHUP)\n"
        "print('lives')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "lives\n"


def test_output_outlives_its_reader(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from rich.console import Console\n"
        "from console.machine.terminal import lasting_stdout\n"
        "console = Console(file=lasting_stdout())\n"
        "for number in range(5000): console.print(number)\n"
        "open(sys.argv[1], 'w').write('came to its end')\n"
    )
    done = tmp_path / "done"
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(done)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    said = process.stderr.read()
    assert process.wait(60) == 0, said
    assert said == b""
    assert done.read_text(encoding="utf-8") == "came to its end"
