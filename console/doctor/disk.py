"""The disk of the run folder: room, and how fast bytes are safe there."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path

from console.doctor.types import Check, Finding, Findings, Patient, ok, problem, warning

DISK = "disk"
GIB = 1 << 30
LEAST_FREE = 2 * GIB
WRITTEN = 64 << 20
CHUNK = 4 << 20
LONGEST_S = 8.0
SLOW = 30 << 20
"""Bytes a second. A policy of 1 GB takes half a minute at this speed, and is written at each
publish."""
SLOW_SYNC_S = 0.1
"""Time of one small write that is slow: the engine's journal makes one a batch of events."""


def disk(patient: Patient) -> Findings:
    """Room, then 64 MiB written, flushed to the disk and deleted."""
    at = nearest(patient.folder)
    free = shutil.disk_usage(at).free
    found: list[Finding] = []
    if free < LEAST_FREE:
        sentence = f"{free / GIB:.1f} GiB free at {at}"
        mend = f"du -xsh {at}/* shows what takes it; or choose another run.folder"
        found.append(problem(DISK, sentence, mend))
    try:
        with tempfile.TemporaryFile(dir=at, prefix=".toolwright-doctor-") as file:
            sync = _small_write(file.fileno())
            written, seconds = _large_write(file.fileno(), min(WRITTEN, free // 4))
    except OSError as error:
        sentence = f"{at} cannot be written ({error.strerror})"
        mend = f"ls -ld {at} shows whose it is; or choose another run.folder"
        return [*found, problem(DISK, sentence, mend)]
    speed = written / max(seconds, 1e-6)
    text = (
        f"{free / GIB:.0f} GiB free, {speed / (1 << 20):.0f} MiB/s, "
        f"{sync * 1000:.1f} ms a small write, at {at}"
    )
    if speed < SLOW or sync > SLOW_SYNC_S:
        mend = "choose a run.folder on a local disk; checkpoints and published weights go there"
        return [*found, warning(DISK, f"slow: {text}", mend)]
    return [*found, ok(DISK, text)]


def nearest(folder: Path) -> Path:
    """The folder, or the first one above it that is there."""
    folder = folder.absolute()
    return next(path for path in (folder, *folder.parents) if path.is_dir())


def _small_write(file: int) -> float:
    """Seconds of 4 KiB, flushed: the median of five."""
    times = []
    for _ in range(5):
        began = time.monotonic()
        os.write(file, os.urandom(4096))
        os.fsync(file)
        times.append(time.monotonic() - began)
    return sorted(times)[2]


def _large_write(file: int, size: int) -> tuple[int, float]:
    """(bytes, seconds) with the flush; LONGEST_S at most, but for the flush itself."""
    chunk = os.urandom(CHUNK)
    began = time.monotonic()
    written = 0
    while written < size and time.monotonic() - began < LONGEST_S:
        written += os.write(file, chunk[: size - written])
    os.fsync(file)
    return written, time.monotonic() - began


CHECKS = (Check(subject=DISK, look=disk, seconds=20.0),)
