"""A loop in a thread: what is asked of it is answered, interrupted or ended with it."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator
from types import FrameType

import pytest

from learner.intake.background import BackgroundLoop, outcome


class Sleeper:
    """Never ends by itself; remembers how it did."""

    def __init__(self) -> None:
        self.cancelled = threading.Event()

    async def sleep(self) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


@pytest.fixture
def loop() -> Iterator[BackgroundLoop]:
    made = BackgroundLoop("test-loop")
    yield made
    made.close()


async def _raises() -> None:
    raise LookupError("as it was")


async def _thread() -> str:
    return threading.current_thread().name


def test_answers_and_errors_come_back_while_other_work_goes_on(loop: BackgroundLoop) -> None:
    sleeper = Sleeper()
    long = loop.start(sleeper.sleep())
    assert loop.run(_thread()) == "test-loop"
    with pytest.raises(LookupError, match="as it was"):
        loop.run(_raises())
    late = loop.start(_raises())
    with pytest.raises(LookupError):
        outcome(late)
    assert not long.done()
    long.cancel()
    assert sleeper.cancelled.wait(20)


def test_an_interrupted_wait_cancels_what_it_waited_for(loop: BackgroundLoop) -> None:
    sleeper = Sleeper()

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(KeyboardInterrupt):
            loop.run(sleeper.sleep())
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert sleeper.cancelled.wait(20)


def test_the_end_cancels_what_runs_and_leaves_no_thread() -> None:
    loop, sleeper = BackgroundLoop("ends"), Sleeper()
    begun = loop.start(sleeper.sleep())
    loop.run(_thread())
    loop.close()
    assert sleeper.cancelled.is_set()
    assert begun.cancelled()
    assert "ends" not in {thread.name for thread in threading.enumerate()}
