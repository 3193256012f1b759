"""Signals to a command that stops in order: the first is obeyed, the second is final."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap

import pytest

from engine.offline.signals import StoppedBySignal, raise_on_signal


def ended(program: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a process of its own: a signal is all of a
    process's."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_a_second_signal_ends_what_hangs_while_it_closes() -> None:
    code, said, told = ended("""
        import asyncio, os, signal
        from engine.offline.signals import run_until_signal

        async def work():
            try:
                os.kill(os.getpid(), signal.SIGINT)
                await asyncio.sleep(10)
            finally:
                os.kill(os.getpid(), signal.SIGINT)  # the same one
                await asyncio.sleep(0.6)
                print("closing", flush=True)
                os.kill(os.getpid(), signal.SIGINT)
                await asyncio.sleep(10)

        asyncio.run(run_until_signal(work()))
    """)
    assert code == 128 + signal.SIGINT
    assert said == "closing\n"
    assert told == "engine: SIGINT again: ended without closing\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_work_without_a_loop_is_stopped_by_name(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with pytest.raises(StoppedBySignal, match=f"stopped by {number.name}"), raise_on_signal():
        signal.raise_signal(number)
    assert signal.getsignal(number) is before
