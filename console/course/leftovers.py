"""What a console that was killed left running: ended before the run goes on.

Invariants
- A process is ours where pid and creation time are those that course.jsonl tells, and whatever is
  in the session that it led. Where another process has that pid by now, nothing is.
- Processes of another machine, of an earlier boot, or of another pid namespace are unknown: a new
  container counts from 1 again.
- This process and those above it are never ended.
- Who was told already is not told again: a learner takes a second SIGTERM for "at once".
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

import psutil

from console.course.commands import LEARNER_GRACE_S
from console.machine.pids import same_space
from console.machine.processes import alive, created
from console.record.course import CourseRecord, ProcessRecord

GRACE_S = 120.0
LEARNERS = ("learner", "sft")
"""They finish a step and write a checkpoint, which takes as long as where they are stopped."""
INTERVAL_S = 0.25
SAY_S = 10.0
"""Between two lines about what is waited for."""
KILL_WAIT_S = 10.0


def left_running(record: CourseRecord) -> tuple[ProcessRecord, ...]:
    """Processes that earlier consoles started here and that live, or left children."""
    if not record.starts or not same_space(record.starts[-1]):
        return ()
    started = (p for p in record.processes if p.state == "started" and p.pid)
    return tuple(p for p in started if any(_members(p)))


def end(
    processes: Iterable[ProcessRecord],
    say: Callable[[str], None],
    *,
    told: bool,
    grace_s: float | None = None,
) -> None:
    """SIGTERM to each group, SIGKILL after the grace. Returns when all are gone.

    told: the kernel sent SIGTERM to each leader when its console died. grace_s: in place of each
    one's own.
    """
    found = tuple(processes)
    for process in reversed(found):
        if not (told and alive(process.pid, process.created)):
            _tell(process, signal.SIGTERM)
    began = said = time.monotonic()
    while living := [process for process in found if any(_members(process))]:
        now = time.monotonic()
        for process in living:
            if now - began > (_grace(process) if grace_s is None else grace_s):
                _tell(process, signal.SIGKILL)
        longest = max(map(_grace, living)) if grace_s is None else grace_s
        if now - began > longest + KILL_WAIT_S:
            return  # not even SIGKILL ends them: their devices hold them
        if now - said > SAY_S:
            said = now
            names = ", ".join(f"{process.name} ({process.pid})" for process in living)
            say(f"still waiting for {names}: a learner finishes its step and writes a checkpoint")
        time.sleep(INTERVAL_S)


def _grace(process: ProcessRecord) -> float:
    return LEARNER_GRACE_S if process.name in LEARNERS else GRACE_S


def _members(record: ProcessRecord) -> Iterator[int]:
    """Pids of the session that the process leads or led. While one lives, the kernel gives that
    number to no other process."""
    if created(record.pid) not in (0.0, record.created):
        return
    spared = {os.getpid(), *(process.pid for process in psutil.Process().parents())}
    for pid in set(psutil.pids()) - spared:
        with suppress(OSError):
            ours = pid == record.pid or os.getsid(pid) == record.pid
            if ours and record.created <= (began := created(pid)) and alive(pid, began):
                yield pid


def _tell(record: ProcessRecord, number: signal.Signals) -> None:
    for pid in list(_members(record)):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
