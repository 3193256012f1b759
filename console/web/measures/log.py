"""The end of a process's log, as `toolwright run` keeps it in the run's folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from console.record.course import LOGS, read_course
from console.redact import redactor
from toolwright.reading.files import open_regular

MOST_BYTES = 32 << 10


class NoLog(LookupError):
    """The log is not there; the message says so."""


def log_of(run: Path, process: str) -> dict[str, Any]:
    """{"file", "text", "cut"}: the last MOST_BYTES of the log, without secrets. cut: bytes before
    them. Only a file directly in RUN/console/logs is read, whatever the run's files name. Raises
    NoLog, and RecordBroken for a course that cannot be read."""
    known = {one.name: Path(one.log).name for one in read_course(run).processes if one.log}
    if process not in known:
        raise NoLog(f"no process {process[:200]!r} of {run.name} has a log")
    file = run / LOGS / known[process]
    try:
        with open_regular(file) as opened:
            size = opened.seek(0, 2)
            cut = max(0, size - MOST_BYTES)
            opened.seek(cut)
            data = opened.read(MOST_BYTES)
    except OSError as error:
        raise NoLog(f"{file} cannot be read: {error.strerror}") from error
    if cut:
        _, _, whole = data.partition(b"\n")
        cut, data = size - len(whole), whole
    text = redactor(names=False).text(data.decode("utf-8", "replace"))
    return {"file": str(file), "text": text, "cut": cut}
