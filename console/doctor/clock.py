"""Clocks: this machine's against itself, its time zone, and a network folder's against ours."""

from __future__ import annotations

import os
import tempfile
import time
from datetime import UTC, datetime

from console.doctor.disk import nearest
from console.doctor.types import Check, Finding, Findings, Patient, ok, problem, warning

CLOCK = "clock"
EARLIEST = datetime(2024, 1, 1, tzinfo=UTC)
MOST_JUMP_S = 0.25
MOST_APART_S = 5.0
WATCHED_S = 0.5
MEND = "timedatectl set-ntp true as root; in a container it is the host's clock"


def clock(patient: Patient) -> Findings:
    now = datetime.now().astimezone()
    if now.astimezone(UTC) < EARLIEST:
        sentence = f"it is said to be {now:%Y-%m-%d}: certificates and file times will not fit"
        return [problem(CLOCK, sentence, MEND)]
    found: list[Finding] = []
    jump = _jump()
    if abs(jump) > MOST_JUMP_S:
        sentence = f"the wall clock jumped by {jump:+.2f} s within {WATCHED_S} s"
        found.append(warning(CLOCK, sentence, MEND))
    apart = _folder_apart(patient)
    if apart is not None and abs(apart) > MOST_APART_S:
        sentence = (
            f"the file system of {nearest(patient.folder)} is {apart:+.0f} s apart from this "
            "machine's clock: which file is newer cannot be told"
        )
        found.append(warning(CLOCK, sentence, f"bring both to one time: {MEND}"))
    return found or [ok(CLOCK, f"{now:%Y-%m-%d %H:%M:%S %Z}")]


def _jump() -> float:
    """Seconds that the wall clock went more than the monotonic one."""
    wall, steady = time.time(), time.monotonic()
    time.sleep(WATCHED_S)
    return (time.time() - wall) - (time.monotonic() - steady)


def _folder_apart(patient: Patient) -> float | None:
    """The folder's clock minus ours, in seconds; None where no file can be written."""
    try:
        with tempfile.TemporaryFile(dir=nearest(patient.folder)) as file:
            before = time.time()
            file.write(b"x")
            file.flush()
            os.fsync(file.fileno())
            after = time.time()
            changed = os.fstat(file.fileno()).st_mtime
    except OSError:
        return None
    # The kernel's clock of files is a tick behind.
    return min(0.0, changed - before) if changed < after else changed - after


CHECKS = (Check(subject=CLOCK, look=clock),)
