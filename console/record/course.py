"""RUN/console/course.jsonl: what `toolwright run` did, one event a line, over all its starts.

`CourseLog` appends; `read_course` folds the lines to a `CourseRecord`. Stage, living processes and
durations follow from the lines and are not stored. Times are unix seconds.

One console at a time writes (it holds the run's lock); any process may read. Readers skip a line
that a kill or a full disk cut, and the next writer removes it.
"""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from console.errors import RecordBroken
from toolwright.reading.files import open_regular

FOLDER = "console"
COURSE = f"{FOLDER}/course.jsonl"
LOGS = f"{FOLDER}/logs"

State = Literal["started", "found", "ended"]
"""A process was started here, answered already when it was looked for, or is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Began:
    """One start of `toolwright run`: its own process, what it was told, and in which folder.

    created: as `machine.processes.created` gives it, in seconds since the boot.
    space: where its pids mean something (`machine.pids.pid_space`). settings: as
    `asked.settings.settings_of` has them. step: steps that the run had made.
    """

    at: float
    pid: int
    created: float
    argv: Sequence[str]
    recipe: str
    overrides: Sequence[str]
    versions: Mapping[str, str] = field(default_factory=dict)
    host: str = ""
    cwd: str = ""
    space: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    step: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRecord:
    """A stage of the course; `seconds` until the next one, or until now for the last."""

    name: str
    text: str
    at: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRecord:
    """A process as it was last heard of; `created` tells it from a later one with the same pid."""

    name: str
    what: str
    command: str
    state: State
    pid: int = 0
    created: float = 0.0
    address: str = ""
    log: str = ""
    status: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How the last start ended: exit status and sentence."""

    at: float
    status: int
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CourseRecord:
    """All starts of a run. `ended` is None while the last start goes on, or was killed."""

    starts: tuple[Began, ...] = ()
    stages: tuple[StageRecord, ...] = ()
    processes: tuple[ProcessRecord, ...] = ()
    peak_memory: int = 0
    ended: Ended | None = None


class CourseLog:
    """Appends events. Every method raises OSError where the folder takes no more."""

    def __init__(self, run: Path) -> None:
        """Opens RUN/console/course.jsonl, which is made where it is missing."""
        path = run / COURSE
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a+b", buffering=0)
        self._cut_to(_whole(path.read_bytes()))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def began(self, began: Began) -> None:
        self._write("began", asdict(began))

    def stage(self, name: str, text: str) -> None:
        """The next stage begins. `name` is one word, `text` is for people."""
        self._write("stage", {"name": name, "text": text})

    def process(self, process: ProcessRecord) -> None:
        """What is known of a process now; the last line of a name counts."""
        self._write("process", asdict(process))

    def memory(self, peak: int) -> None:
        """Bytes that all processes together took at most, so far."""
        self._write("memory", {"peak": peak})

    def ended(self, status: int, sentence: str) -> None:
        """This start is over."""
        self._write("ended", {"status": status, "sentence": sentence})

    def _write(self, event: str, values: Mapping[str, Any]) -> None:
        line = json.dumps({"event": event, **values, "at": time.time()}, ensure_ascii=False)
        data = line.encode() + b"\n"
        before = os.fstat(self._file.fileno()).st_size
        try:
            written = self._file.write(data)
        except OSError:
            self._cut_to(before)
            raise
        if written != len(data):
            # The disk took a part of the line.
            self._cut_to(before)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._file.name))

    def _cut_to(self, size: int) -> None:
        if os.fstat(self._file.fileno()).st_size != size:
            os.ftruncate(self._file.fileno(), size)


def read_course(run: Path) -> CourseRecord:
    """The fold of all lines; an empty record where there is no file. RecordBroken."""
    path = run / COURSE
    try:
        with open_regular(path) as file:
            data = file.read()
    except (FileNotFoundError, NotADirectoryError):
        return CourseRecord()
    except OSError as error:
        raise RecordBroken(
            f"{path} cannot be read ({error.strerror}): give this user rights there, or move it "
            "away if it is no file of toolwright's"
        ) from error
    try:
        return _fold(_events(data[: _whole(data)]))
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise RecordBroken(f"{path}: a line is not of toolwright's course: {error!r}") from error


def _whole(data: bytes) -> int:
    """Bytes up to the end of the last whole line."""
    return data.rfind(b"\n") + 1


def _events(data: bytes) -> Iterator[tuple[str, float, dict[str, Any]]]:
    for line in data.splitlines():
        row = json.loads(line)
        yield str(row.pop("event")), float(row.pop("at")), row


def _fold(events: Iterator[tuple[str, float, dict[str, Any]]]) -> CourseRecord:
    starts: list[Began] = []
    stages: list[StageRecord] = []
    processes: dict[str, ProcessRecord] = {}
    peak = 0
    ended: Ended | None = None
    last = 0.0
    for event, at, row in events:
        if event in ("began", "stage", "ended"):
            # A start that was killed has no end: its last stage goes to its last sign of life.
            _close(stages, last if event == "began" else at)
        row.pop("booted", None)  # of earlier versions
        match event:
            case "began":
                start = Began(**{**row, "at": at})
                if starts and (starts[-1].host, starts[-1].space) != (start.host, start.space):
                    processes = {name: _over(one) for name, one in processes.items()}
                starts.append(start)
                ended = None
            case "stage":
                stages.append(StageRecord(name=row["name"], text=row["text"], at=at, seconds=-1.0))
            case "process":
                processes[row["name"]] = ProcessRecord(**row)
            case "memory":
                peak = max(peak, int(row["peak"]))
            case "ended":
                ended = Ended(at=at, status=int(row["status"]), sentence=str(row["sentence"]))
        last = at
    _close(stages, time.time())
    return CourseRecord(
        starts=tuple(starts),
        stages=tuple(stages),
        processes=tuple(processes.values()),
        peak_memory=peak,
        ended=ended,
    )


def boot_id() -> str:
    """This boot of the kernel; "" if the system does not name it."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _over(process: ProcessRecord) -> ProcessRecord:
    """What another machine, or this one before its last boot, had: its pid says nothing here."""
    return replace(process, state="ended") if process.state == "started" else process


def _close(stages: list[StageRecord], at: float) -> None:
    if stages and stages[-1].seconds < 0:
        stages[-1] = replace(stages[-1], seconds=max(0.0, at - stages[-1].at))
