"""What signals make of a learner's process, before there is something to save and afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from learner.ending import ENDED, read_ending
from learner.stop import SIGNALS, TOGETHER_S, Interrupted, Stop
from tests.support.waiting import blocks

PROGRAM = """
import ctypes, signal, sys
from learner.ending import listening
for name in sys.argv[2:]:
    signal.signal(getattr(signal, name), signal.SIG_IGN)
with listening() as stop:
    if sys.argv[1] == "training":
        stop.begin_saving()
    print("ready", flush=True)
    mutex = ctypes.create_string_buffer(64)
    lock = ctypes.CDLL(None).pthread_mutex_lock
    if sys.argv[1] != "waiting":
        lock(mutex), lock(mutex)  # native code that never comes back
    sys.stdin.read()
"""


@pytest.fixture
def started(tmp_path: Path) -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def start(started: ExitStack, tmp_path: Path, *arguments: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, ENDED: str(tmp_path / "ended")},
    )
    started.callback(process.wait, 20)
    started.callback(process.kill)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_before_the_first_step_one_signal_ends_it_at_once(
    started: ExitStack, tmp_path: Path, number: signal.Signals
) -> None:
    process = start(started, tmp_path, "loading")
    process.send_signal(number)
    _, said = process.communicate(timeout=20)
    assert process.returncode == 128 + number
    sentence = f"stopped by {number.name} before its first step; the same command begins again"
    assert said == f"learner: {sentence}\n"
    assert read_ending(tmp_path / "ended") == (128 + number, sentence)


def test_later_the_second_one_does_also_in_native_code(started: ExitStack, tmp_path: Path) -> None:
    process = start(started, tmp_path, "training")
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):  # the two are one
        process.wait(TOGETHER_S + 0.2)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=20)
    assert process.returncode == 130
    assert said.startswith("learner: ended at once by SIGINT; the same command goes on")


def test_what_was_ignored_at_the_start_stays_ignored(started: ExitStack, tmp_path: Path) -> None:
    process = start(started, tmp_path, "waiting", "SIGHUP", "SIGINT")
    for number in (signal.SIGHUP, signal.SIGINT):
        process.send_signal(number)
    assert process.communicate("", timeout=20)[1] == ""
    assert process.returncode == 0


def test_a_wait_is_left_by_the_first_one_or_not_begun() -> None:
    stop = Stop()
    before = [signal.getsignal(number) for number in SIGNALS]
    with stop.listening(lambda _status, _sentence: None):
        stop.begin_saving()
        with pytest.raises(Interrupted), stop.interruptible():
            os.kill(os.getpid(), signal.SIGTERM)
            blocks(5, "the signal comes at once")
        assert stop.requested is signal.SIGTERM
        with pytest.raises(Interrupted), stop.interruptible():
            pytest.fail("a wait was begun after the stop")
    assert [signal.getsignal(number) for number in SIGNALS] == before
    error = stop.error(7)
    assert (error.status, str(error)) == (143, "stopped; the same command goes on from step 7")
