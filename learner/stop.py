"""A stop that somebody asks for: SIGTERM, SIGINT (Ctrl-C), or the SIGHUP of a terminal that closed.

Invariants
- Until `save_first` the first signal ends the process at once: there is nothing to save.
- From then on the first one is only noted. Who trains looks at `asked` between steps, writes a
  checkpoint and ends; a wait inside of `at_once` is left by `Interrupted`.
- A second one ends the process at once, also out of native code that does not come back: a thread
  hears of it, not the interpreter's main loop.
- Signals within TOGETHER_S of each other are one: whoever stops a job tells its launcher and its
  ranks, and the launcher tells the ranks again.
- A signal that this process was started to ignore (nohup, a shell's &) stays ignored.

Ending at once needs no tidying: what a killed run leaves half written, its next start sweeps.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from learner.errors import StoppedError

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
SIGNALLED = 128
"""Added to a signal's number: the exit status, as shells have it."""
TOGETHER_S = 1.0
_SHOW_CURSOR = "\x1b[?25h"


class Interrupted(BaseException):
    """Ends a wait inside of `at_once`. No Exception: nothing but the waiter's caller catches it."""


class Stop:
    """What this process was asked. asked: the signal, None as long as none came."""

    def __init__(self) -> None:
        self.asked: signal.Signals | None = None
        self._saves_first = False
        self._waits = False
        self._since: float | None = None

    @contextmanager
    def listening(self, leave: Callable[[int, str], object]) -> Iterator[None]:
        """Has the process's signals; in the main thread, once.

        leave: given status and sentence, says so where somebody looks for it; the process ends
        when it returns.
        """
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        before = {
            number: signal.signal(number, self._note)
            for number in SIGNALS
            if signal.getsignal(number) != signal.SIG_IGN
        }
        woken = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
        watch = threading.Thread(target=self._watch, args=(ours, leave), name="signals")
        watch.daemon = True
        watch.start()
        try:
            yield
        finally:
            signal.set_wakeup_fd(woken)
            for number, handler in before.items():
                signal.signal(number, handler)
            theirs.close()  # which ends the thread
            watch.join()
            ours.close()

    def save_first(self) -> None:
        """From now on there is something to save."""
        self._saves_first = True

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """A wait that a stop cuts short: Interrupted, also where the stop was asked before."""
        self._waits = True
        try:
            if self.asked is not None:
                raise Interrupted
            yield
        finally:
            self._waits = False

    def error(self, step: int, why: str = "") -> StoppedError:
        """What a run raises that stopped with everything up to `step` in a checkpoint."""
        asked = self.asked or signal.SIGTERM  # another rank was asked
        sentence = f"stopped{why}; the same command goes on from step {step}"
        return StoppedError(sentence, SIGNALLED + asked)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if self.asked is None:
            self.asked = signal.Signals(number)
        if self._waits:
            raise Interrupted

    def _watch(self, ours: socket.socket, leave: Callable[[int, str], object]) -> None:
        while numbers := ours.recv(64):
            for number in numbers:
                if number in SIGNALS and (sentence := self._at_once_because(number)):
                    if sys.stdout.isatty():
                        print(_SHOW_CURSOR, end="", flush=True)
                    leave(SIGNALLED + number, sentence)
                    os._exit(SIGNALLED + number)

    def _at_once_because(self, number: int) -> str:
        """Why this signal ends the process at once; empty where it does not."""
        name, now = signal.Signals(number).name, time.monotonic()
        if not self._saves_first:
            return f"stopped by {name} before its first step; the same command begins again"
        if self._since is None:
            self._since = now
        if now - self._since <= TOGETHER_S:
            return ""
        return f"ended at once by {name}; the same command goes on from the newest checkpoint"
