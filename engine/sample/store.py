"""The files of `engine sample`: what is kept, and which tasks are decided.

While it works there are OUTPUT.unfinished and OUTPUT.progress.jsonl, a line a task; at the end
OUTPUT is there whole, and the progress file stays, so that a larger --n goes on from it.

Invariants
- A task's trajectories are in the file before its line is; a line says how long the files were
  then. What is longer belongs to no line and is cut at the next start.
- The progress belongs to one recipe, its tasks, its filter and its weights: the first line says
  which, and a start with others is refused.
- One process at a time has the files.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import orjson
from google.protobuf.proto import serialize_length_prefixed

from engine.begun_with import what_differs
from engine.errors import StartupError
from engine.lines import Lines, append_whole, when_there_is_room
from engine.sample.choice import Verdict
from toolwright.types import Trajectory
from toolwright.wire import trajectory_to_proto

Settings = Mapping[str, str]
"""What a collection belongs to, by names that people know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """What became of one task. marks and kept: of the trajectories that stay. conversations: lines
    of the export. bad: why no trajectory could be made of it."""

    position: int
    task_id: str
    verdicts: Sequence[Verdict] = ()
    marks: Sequence[str] = ()
    kept: Sequence[Trajectory] = ()
    conversations: Sequence[Mapping[str, Any]] = ()
    untold: Sequence[str] = ()
    bad: str = ""


@dataclass(slots=True)
class Totals:
    """Counts over all lives. tasks: decided, bad ones too. untold: kept and not exported, by
    reason."""

    tasks: int = 0
    bad_rows: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    untold: Counter[str] = field(default_factory=Counter)
    last_bad: str = ""


class Store:
    """`open` it, `add` to it, `finish` it; `close` in every case."""

    def __init__(self, output: Path, *, export: bool) -> None:
        self.output = output
        self.exported = output.with_name(output.name + ".jsonl") if export else None
        self.totals = Totals()
        self.seen: set[str] = set()
        """Marks of what was kept."""
        self._lines = Lines(output.with_name(output.name + ".progress.jsonl"))
        self._targets = [output, *([self.exported] if self.exported else [])]
        self._sizes = [0 for _ in self._targets]
        self._decided = bytearray()
        self._adding = asyncio.Lock()
        self._lock: BinaryIO | None = None

    @property
    def full(self) -> bool:
        """The disk is full: a task waits with its trajectories."""
        return self._lines.full

    def is_decided(self, position: int) -> bool:
        return position < len(self._decided) and bool(self._decided[position])

    async def open(self, settings: Settings) -> None:
        """Takes up what an earlier life has. StartupError where that was another collection, where
        OUTPUT is something else, or where another process has it."""
        self.output.parent.mkdir(parents=True, exist_ok=True)
        if not self._lines.file.exists() and self.output.exists():
            raise StartupError(f"{self.output} is there already; choose another --output")
        self._take_lock()
        self._lines.mend_end()
        rows = self._lines.read()
        head = next(rows, None)
        first = next(rows, None)
        if first is None:  # nothing was decided by it yet
            os.truncate(self._lines.file, 0)
            await self._lines.append({"settings": dict(settings)})
        else:
            self._check((head or {}).get("settings") or {}, settings)
        self._back_to_unfinished()
        there = [_size(_unfinished(target)) for target in self._targets]
        for row in chain([first] if first else (), rows):
            if any(size > found for size, found in zip(row["sizes"], there, strict=True)):
                break  # a power cut took what the line speaks of
            self._enter(row)
        for target, size, found in zip(self._targets, self._sizes, there, strict=True):
            if found > size:
                os.truncate(_unfinished(target), size)

    async def add(self, decided: Decided) -> None:
        """Writes a task's outcome; on a full disk it waits for space."""
        data = [b"".join(map(_message, decided.kept))]
        if self.exported:
            data.append(b"".join(orjson.dumps(one) + b"\n" for one in decided.conversations))
        async with self._adding:
            await self._write(decided, data)

    async def _write(self, decided: Decided, data: Sequence[bytes]) -> None:
        for target, piece in zip(self._targets, data, strict=True):
            await self._append(_unfinished(target), piece)
        sizes = [size + len(piece) for size, piece in zip(self._sizes, data, strict=True)]
        row = {
            "position": decided.position,
            "task_id": decided.task_id,
            "verdicts": [str(verdict) for verdict in decided.verdicts],
            "marks": list(decided.marks),
            "untold": list(decided.untold),
            "bad": decided.bad,
            "sizes": sizes,
        }
        await self._lines.append(row)
        self._enter(row)

    def finish(self) -> None:
        """OUTPUT and the export are there, whole and durable."""
        for target in self._targets:
            unfinished = _unfinished(target)
            with unfinished.open("ab") as file:
                os.fsync(file.fileno())
            unfinished.replace(target)

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    async def _append(self, file: Path, data: bytes) -> None:
        def tell(full: bool) -> None:
            self._lines.full = full

        await when_there_is_room(lambda: append_whole(file, (data,)), file, tell)

    def _take_lock(self) -> None:
        self._lines.file.touch()
        self._lock = self._lines.file.open("rb")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise StartupError(
                f"{self.output} is written by another `engine sample`: wait for it, or choose "
                "another --output"
            ) from error

    def _check(self, before: Mapping[str, str], now: Settings) -> None:
        if differs := what_differs(before, now):
            raise StartupError(
                f"{self.output} {differs}: go on with what it was begun with, or choose another "
                "--output"
            )

    def _back_to_unfinished(self) -> None:
        """A collection that was finished goes on in a copy: OUTPUT stays what it was meanwhile."""
        for target in self._targets:
            if target.exists() and not _unfinished(target).exists():
                shutil.copyfile(target, _unfinished(target))

    def _enter(self, row: Mapping[str, Any]) -> None:
        position = int(row["position"])
        if self.is_decided(position):
            return
        self._decided.extend(bytes(max(0, position + 1 - len(self._decided))))
        self._decided[position] = 1
        self._sizes = list(row["sizes"])
        self.seen.update(row["marks"])
        self.totals.tasks += 1
        self.totals.verdicts.update(row["verdicts"])
        self.totals.untold.update(row["untold"])
        if row["bad"]:
            self.totals.bad_rows += 1
            self.totals.last_bad = row["bad"]


def _unfinished(target: Path) -> Path:
    return target.with_name(target.name + ".unfinished")


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def _message(trajectory: Trajectory) -> bytes:
    out = BytesIO()
    serialize_length_prefixed(trajectory_to_proto(trajectory), out)
    return out.getvalue()
