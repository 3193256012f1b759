"""Answers of mathematics compared as expressions: "1/2" is "\\frac{1}{2}", and x+1 is 1+x.

`math-verify` reads and compares (the extra `tasks`), in processes of its own.

Invariants
- A judge may be asked from any thread, by several at once, and each question has an end: `seconds`
  of CPU, and the time to start a process. An expression that takes longer, or kills its process, is
  wrong. Seconds of CPU are the same on a busy machine; those of the clock are bounded more loosely.
- A process that does not start is a TaskFault and no verdict: no answer is to blame for it.
- Equal canonical texts, two whole numbers, other units and other number bases need no process
  (`toolwright.reading.expressions`). Processes start when they are needed.
- Exact numbers are compared exactly, decimals within six places and within `numbers.CLOSE`.
- Without `math-verify` the comparison is that of `numbers`, and a judge says so once.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import queue
import select
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

import structlog

from tasks.errors import TaskFault
from tasks.judging.numbers import other_units, same_number_or_text
from toolwright.reading.expressions import LONGEST as LONGEST
from toolwright.reading.expressions import (
    bases,
    expression,
    in_base_ten,
    quantity,
)

WORKER = Path(__file__).with_name("symbols_worker.py")
MOST_GOLDS = 32
_START_SECONDS = 120.0
_SLOWER = 20.0
"""How much slower than the CPU's the clock may be, before a process is killed from here."""
_MOST_STDERR = 4000
"""Bytes, the last ones, of what a process says while it starts."""

log = structlog.get_logger(__name__)


class _WorkerDied(Exception):
    """The process ended over a question, or did not answer in time."""


class MathJudge:
    """Says whether an answer is right. Close it, or use it in a `with`.

    seconds: of CPU, for one question. workers: processes at most; who asks while all are busy
    waits. counts: questions by what became of them: `text` (no process was asked), `asked`, `died`.
    """

    def __init__(self, *, seconds: float = 5.0, workers: int = 2) -> None:
        """Raises TaskFault if no question could ever be answered."""
        if workers < 1:
            raise TaskFault(f"MathJudge(workers={workers}): at least 1, or every question waits")
        if not (math.isfinite(seconds) and seconds > 0):
            raise TaskFault(f"MathJudge(seconds={seconds}): a finite number above 0")
        self.symbolic = importlib.util.find_spec("math_verify") is not None
        """Whether expressions are compared, and not only numbers and texts."""
        self.counts: Counter[str] = Counter()
        self._seconds = seconds
        self._places: queue.LifoQueue[_Worker | None] = queue.LifoQueue()
        self._workers = workers
        for _ in range(workers):
            self._places.put(None)
        if not self.symbolic:
            log.warning(
                "answers are compared as numbers and texts alone: pip install 'toolwright[tasks]'"
            )

    def right(self, answer: str | None, golds: Sequence[str]) -> bool:
        """Whether an answer is one of the right ones; None is no answer. Blocks: not for an event
        loop's thread. Raises TaskFault if no process can be started."""
        if answer is None or not answer.strip():
            return False
        short = [gold for gold in golds[:MOST_GOLDS] if len(gold) <= LONGEST]
        if len(answer) > LONGEST:
            return answer.strip() in map(str.strip, golds)
        known = {gold: _by_text(answer, gold) for gold in short}
        unknown = [gold for gold, right in known.items() if right is None]
        decided = any(known.values()) or not unknown
        if decided or not self.symbolic:
            self.counts["text"] += 1
            return any(known.values()) or same_number_or_text(answer, unknown)
        return self._ask(_read(answer), list(map(_read, unknown)))

    def close(self) -> None:
        """Ends the processes. A judge that is asked again starts new ones."""
        for _ in range(self._workers):
            worker = self._places.get()
            if worker is not None:
                worker.close()
            # Nobody asks while it is closed, so the place is free for the next question.
        for _ in range(self._workers):
            self._places.put(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def _ask(self, answer: str, golds: list[str]) -> bool:
        self.counts["asked"] += 1
        worker = self._places.get()
        try:
            if worker is not None and worker.ended():  # it ended between questions
                worker.close()
                worker = None
            worker = worker or _Worker()
            return worker.ask(answer, golds, self._seconds)
        except _WorkerDied:
            self.counts["died"] += 1
            if worker is not None:
                worker.close()
                worker = None
            return False
        except BaseException:  # Ctrl-C in the middle: its reply would be the next question's
            if worker is not None:
                worker.close()
                worker = None
            raise
        finally:
            self._places.put(worker)


class _Worker:
    """One process, asked by one thread at a time."""

    def __init__(self) -> None:
        # By its file, and -P: the folder of this package must not hide modules of Python's.
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(WORKER)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
            )
        except OSError as error:
            raise TaskFault(f"no process to compare expressions can be started: {error}") from error
        self._ready = False

    def ended(self) -> bool:
        return self._process.poll() is not None

    def ask(self, answer: str, golds: list[str], seconds: float) -> bool:
        """Raises _WorkerDied if no reply comes, TaskFault where the process does not start."""
        if not self._ready:
            self._await_start()
            self._ready = True
        line = json.dumps({"answer": answer, "golds": golds, "seconds": seconds})
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line.encode() + b"\n")
        except OSError as error:
            raise _WorkerDied from error
        return self._reply(_SLOWER * (seconds + 1)).get("right") is True

    def _await_start(self) -> None:
        """Until its first line. What it says on stderr is read all the while, so that it never
        waits for a reader; from its first line on it says nothing there."""
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        replies, errors = self._process.stdout.fileno(), self._process.stderr.fileno()
        watched, end, said = select.poll(), time.monotonic() + _START_SECONDS, b""
        for descriptor in (replies, errors):
            watched.register(descriptor, select.POLLIN)
        still_open, held = {replies, errors}, b""
        while still_open and not held.endswith(b"\n"):
            left = end - time.monotonic()
            ready = [at for at, _ in watched.poll(left * 1000)] if left > 0 else []
            if not ready:
                raise _not_started(f"is silent after {_START_SECONDS:g} s", said)
            for descriptor in ready:
                piece = os.read(descriptor, 4096)
                if not piece:
                    watched.unregister(descriptor)
                    still_open.discard(descriptor)
                elif descriptor == replies:
                    held += piece
                else:
                    said = (said + piece)[-_MOST_STDERR:]
        if not held.endswith(b"\n"):
            raise _not_started("ends at its start", said)

    def _reply(self, seconds: float) -> dict[str, bool]:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        ready, end, held = select.poll(), time.monotonic() + seconds, b""
        ready.register(descriptor, select.POLLIN)
        while not held.endswith(b"\n"):
            left = end - time.monotonic()
            if left <= 0 or not ready.poll(left * 1000):
                raise _WorkerDied
            piece = os.read(descriptor, 4096)
            if not piece:
                raise _WorkerDied
            held += piece
        found: dict[str, bool] = json.loads(held)
        return found

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()


def _not_started(what: str, said: bytes) -> TaskFault:
    lines = said.decode(errors="replace").strip().splitlines()
    return TaskFault(
        f"the process that compares expressions {what}: {lines[-1] if lines else 'no word'}; "
        f"`{sys.executable} -P {WORKER}` shows more, and without math-verify numbers are compared"
    )


def shared_judge(seconds: float = 5.0, workers: int = 2) -> MathJudge:
    """The judge of this process with these options: rewards that share it share its processes."""
    return _shared(seconds, workers)


@cache
def _shared(seconds: float, workers: int) -> MathJudge:
    return MathJudge(seconds=seconds, workers=workers)


def _by_text(answer: str, gold: str) -> bool | None:
    """What the canonical texts decide; None if an expression has to be read."""
    said, right = expression(answer), expression(gold)
    if not said or not right:
        return False
    if bases(said) != bases(right):
        return False
    if in_base_ten(said) == in_base_ten(right):
        return True
    one, other = quantity(answer), quantity(gold)
    if one is None or other is None:
        return None
    if other_units(one, other):
        return False
    return one.value == other.value if _whole(one.number) and _whole(other.number) else None


def _whole(number: str) -> bool:
    return number.lstrip("+-").replace(",", "").isdecimal()


def _read(text: str) -> str:
    """The text that a process reads: canonical, in base 10; of a number without its unit."""
    found = quantity(text)
    if found is None or found.percent:
        return in_base_ten(expression(text))
    return found.number
