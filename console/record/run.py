"""Everything that a run folder tells, of any run: started by `toolwright run`, by hand, or on a
cluster; over, killed, or going on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from pathlib import Path

from console.errors import RecordBroken
from console.record.course import COURSE, CourseRecord, read_course
from console.record.files import IMITATION, STEPS, read_record
from console.record.resolved import Resolved, read_resolved
from console.record.types import Record
from toolwright.reading.files import open_regular

ENGINE_LOG = "engine.jsonl"
SIGNS = (
    *(STEPS, IMITATION, ENGINE_LOG, COURSE),
    *("engine.resolved.json", "learner.resolved.json", "sft.resolved.json"),
)
"""A folder with one of these is a run's."""
MOST_RUNS = 24
MOST_MEANT = 3
MOST_ENTRIES = 1000
"""Maximum entries of a folder that are searched for runs."""
_ENDS = 1 << 16
"""Bytes that the first and the last line of a log are looked for in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFiles:
    """One run. name: the last parts of its path that tell it from the others read with it.

    began, last: unix seconds of the first and the newest sign of life; None where none is told.
    """

    folder: Path
    name: str
    record: Record = field(default_factory=Record)
    resolved: Resolved = field(default_factory=Resolved)
    course: CourseRecord = field(default_factory=CourseRecord)
    began: float | None = None
    last: float | None = None
    remarks: tuple[str, ...] = ()

    @property
    def steps(self) -> int:
        """Steps that it has made."""
        return self.record.steps[-1].step if self.record.steps else 0

    @property
    def planned(self) -> int | None:
        """Steps that its recipe asks for, where it tells."""
        return self.resolved.whole("run.steps")


def read_runs(folders: Sequence[Path]) -> list[RunFiles]:
    """The runs of folders. Raises RecordBroken for a folder without a run, and for more than
    MOST_RUNS."""
    check_count(folders)
    names = distinct([folder.resolve() for folder in folders])
    return [read_run(folder, name) for folder, name in zip(folders, names, strict=True)]


def check_count(folders: Sequence[Path]) -> None:
    """RecordBroken for more runs than MOST_RUNS."""
    if len(folders) > MOST_RUNS:
        raise RecordBroken(
            f"{len(folders)} runs are more than a page can tell apart: at most {MOST_RUNS}"
        )


def check_run(folder: Path) -> None:
    """Raises RecordBroken if the folder has no run, or is another user's."""
    try:
        is_run = _is_run(folder)
    except OSError as error:
        raise RecordBroken(
            f"{folder} cannot be read ({error.strerror}): ask its owner for rights there"
        ) from error
    if not is_run:
        raise RecordBroken(
            f"{folder} is no run folder: it has none of {', '.join(SIGNS)}. "
            f"Name the run.folder of a run{_meant(folder)}"
        )


def _is_run(folder: Path) -> bool:
    return any((folder / sign).is_file() for sign in SIGNS)


def _meant(folder: Path) -> str:
    """For a recipe, or its folder, where the folders of its runs lie."""
    home = folder.parent if folder.is_file() else folder
    try:
        found = sorted(one for one in islice(home.iterdir(), MOST_ENTRIES) if _is_run(one))
    except (OSError, ValueError):  # ValueError: a name that no file can have
        return ""
    return f" (did you mean {' or '.join(map(str, found[:MOST_MEANT]))}?)" if found else ""


def read_run(folder: Path, name: str = "") -> RunFiles:
    """The run of a folder. Raises RecordBroken if the folder has no run or cannot be read."""
    check_run(folder)
    return read_folder(folder, name)


def read_folder(folder: Path, name: str = "") -> RunFiles:
    """As `read_run`, also of a folder that has none of SIGNS: nothing is known of that run."""
    remarks = []
    try:
        record, resolved = read_record(folder), read_resolved(folder)
        try:
            course = read_course(folder)
        except RecordBroken as error:
            course = CourseRecord()
            remarks.append(str(error))
        began, last = _times(folder / ENGINE_LOG)
    except OSError as error:
        raise RecordBroken(
            f"{folder} cannot be read: {error.filename or ''} {error.strerror}"
        ) from error
    if course.starts:
        began = min(filter(None, (began, course.starts[0].at)))
    return RunFiles(
        folder=folder.resolve(),
        name=name or folder.resolve().name,
        record=record,
        resolved=resolved,
        course=course,
        began=began,
        last=last if course.ended is None else max(last or 0.0, course.ended.at),
        remarks=(*record.remarks, *resolved.remarks, *remarks),
    )


def distinct(folders: Sequence[Path]) -> list[str]:
    """The last parts of the paths, as many as tell them apart; twins have the same name."""
    most = max((len(folder.parts) for folder in folders), default=1)
    for count in range(1, most + 1):
        names = ["/".join(folder.parts[-count:]) for folder in folders]
        if len(set(names)) == len(set(folders)):
            return names
    return [str(folder) for folder in folders]


def _times(log: Path) -> tuple[float | None, float | None]:
    """Unix seconds of the first and the last line of the engine's log."""
    if not log.is_file():
        return None, None
    with open_regular(log) as file:
        head = file.read(_ENDS)
        file.seek(max(0, file.seek(0, 2) - _ENDS))
        tail = file.read(_ENDS)
    stamps = [at for line in head.splitlines() if (at := _stamp(line)) is not None]
    ends = [at for line in tail.splitlines() if (at := _stamp(line)) is not None]
    return (stamps[0] if stamps else None), (ends[-1] if ends else None)


def _stamp(line: bytes) -> float | None:
    try:
        return datetime.fromisoformat(json.loads(line)["timestamp"]).timestamp()
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return None
