"""Stop requests: SIGTERM, SIGINT (Ctrl-C), or the SIGHUP of a terminal that closed.

Invariants
- Until `begin_saving` the first signal ends the process at once: there is nothing to save.
- After it the first signal is only noted. The training loop reads `requested` between steps, writes
  a checkpoint and ends. `Interrupted` leaves a wait inside of `interruptible`.
- A second signal ends the process at once, even while native code blocks: a thread reads it, not
  the interpreter's main loop.
- Signals within TOGETHER_S of each other count as one. A job's scheduler signals the launcher and
  its ranks, and the launcher signals the ranks again.
- A signal that this process was started to ignore (nohup, a shell's &) stays ignored.

Ending at once needs no clean-up: the next start removes what a killed run left half written.
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
    """Ends a wait inside of `interruptible`.

    Not an Exception: only the caller of the wait catches it.
    """


class Stop:
    """Stop requests of this process."""

    def __init__(self) -> None:
        self.requested: signal.Signals | None = None
        """The first signal; None before it."""
        self._saving = False
        self._waits = False
        self._since: float | None = None

    @contextmanager
    def listening(self, leave: Callable[[int, str], object]) -> Iterator[None]:
        """Handles the process's signals inside the block; in the main thread, once.

        leave: reports an exit status and a sentence. The process ends when it returns.
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

    def begin_saving(self) -> None:
        """From now on a stop waits for a checkpoint."""
        self._saving = True

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """A wait that a stop cuts short.

        Raises Interrupted, also if the stop was requested before the block.
        """
        self._waits = True
        try:
            if self.requested is not None:
                raise Interrupted
            yield
        finally:
            self._waits = False

    def error(self, step: int, why: str = "") -> StoppedError:
        """Error of a run that stopped with everything up to `step` in a checkpoint."""
        number = self.requested or signal.SIGTERM  # another rank got the signal
        sentence = f"stopped{why}; the same command goes on from step {step}"
        return StoppedError(sentence, SIGNALLED + number)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if self.requested is None:
            self.requested = signal.Signals(number)
        if self._waits:
            raise Interrupted

    def _watch(self, ours: socket.socket, leave: Callable[[int, str], object]) -> None:
        while numbers := ours.recv(64):
            for number in numbers:
                if number in SIGNALS and (sentence := self._reason_to_end(number)):
                    if sys.stdout.isatty():
                        print(_SHOW_CURSOR, end="", flush=True)
                    leave(SIGNALLED + number, sentence)
                    os._exit(SIGNALLED + number)

    def _reason_to_end(self, number: int) -> str:
        """Why this signal ends the process at once; empty if it does not."""
        name, now = signal.Signals(number).name, time.monotonic()
        if not self._saving:
            return f"stopped by {name} before its first step; the same command begins again"
        if self._since is None:
            self._since = now
        if now - self._since <= TOGETHER_S:
            return ""
        return f"ended at once by {name}; the same command goes on from the newest checkpoint"
