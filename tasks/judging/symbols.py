"""Answers of mathematics compared as expressions: "1/2" is "\\frac{1}{2}", and x+1 is 1+x.

`math-verify` reads and compares (the extra `tasks`), in processes of its own.

Invariants
- A judge may be asked from any thread, by several at once, and each question has an end: `seconds`
  of CPU, and the time to start a process. An expression that takes longer, or kills its process, is
  wrong. Seconds of CPU are the same on a busy machine; those of the clock are bounded more loosely.
- What is the same text, or two whole numbers, needs no process. Processes start when they are
  needed.
- Without `math-verify` the comparison is that of `numbers`, and a judge says so once.
"""

from __future__ import annotations

import importlib.util
import json
import os
import queue
import re
import select
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import structlog

from tasks.judging.numbers import same_number_or_text

WORKER = Path(__file__).with_name("symbols_worker.py")
LONGEST = 2000
"""Characters of an expression. A longer one is wrong."""
MOST_GOLDS = 32
_START_SECONDS = 120.0
_SLOWER = 20.0
"""How much slower than the CPU's the clock may be, before a process is killed from here."""
_WHOLE = re.compile(r"[-+]?\d{1,300}")

log = structlog.get_logger(__name__)


class _WorkerDied(Exception):
    """The process ended, or did not answer in time."""


class MathJudge:
    """Says whether an answer is right. Close it, or use it in a `with`.

    seconds: of CPU, for one question. workers: processes at most; who asks while all are busy
    waits. counts: questions by what became of them: `text` (no process was asked), `asked`, `died`.
    """

    def __init__(self, *, seconds: float = 5.0, workers: int = 2) -> None:
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
        loop's thread."""
        if answer is None or not answer.strip():
            return False
        known = _by_text(answer, golds)
        if known is None and not self.symbolic:
            known = same_number_or_text(answer, golds)
        if known is not None:
            self.counts["text"] += 1
            return known
        short = [gold for gold in golds[:MOST_GOLDS] if len(gold) <= LONGEST]
        if len(answer) > LONGEST or not short:
            return False
        return self._ask(answer, short)

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
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
        )
        self._ready = False

    def ask(self, answer: str, golds: list[str], seconds: float) -> bool:
        """_WorkerDied where no reply comes."""
        if not self._ready:
            self._reply(_START_SECONDS)
            self._ready = True
        line = json.dumps({"answer": answer, "golds": golds, "seconds": seconds})
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line.encode() + b"\n")
        except OSError as error:
            raise _WorkerDied from error
        return self._reply(_SLOWER * (seconds + 1)).get("right") is True

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
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def _by_text(answer: str, golds: Sequence[str]) -> bool | None:
    """What the texts alone tell; None where an expression has to be read."""
    said = answer.strip()
    if any(gold.strip() == said for gold in golds):
        return True
    if _WHOLE.fullmatch(said) and all(_WHOLE.fullmatch(gold.strip()) for gold in golds):
        return any(int(gold) == int(said) for gold in golds)
    return None
