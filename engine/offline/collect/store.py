"""The progress of `engine sample`: which tasks are decided, and what is kept of them.

While it works there are files that end in `.unfinished` (see `shards`) and OUTPUT.progress.jsonl, a
line a task; at the end OUTPUT is there whole, and the progress file stays, so that a larger --n or
budget goes on from it. OUTPUT.yield.json tells people the counts, OUTPUT.log.jsonl is the log.

Invariants
- A task's trajectories are in the files before its line is; a line says how long the files were
  then. What is longer belongs to no line and is cut at the next start.
- A line that says more than a file has is cut with all lines after it: their tasks are open. So is
  an end that cannot be read. Where a file is gone, or a line between others cannot be read, nothing
  is changed and the start is refused.
- All trajectories of a task are in one shard.
- The progress belongs to one recipe, its tasks, its criteria and its weights: the first line says
  which, and a start with others is refused.
- One process at a time has the files.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from google.protobuf.proto import serialize_length_prefixed

from engine.errors import StartupError
from engine.offline.collect.choice import Totals, Verdict
from engine.offline.collect.layouts import Layout, json_line
from engine.offline.collect.shards import Shards, unfinished_of
from engine.offline.resume_settings import what_differs
from engine.serving.json_lines import Lines, append_whole, when_there_is_room
from toolwright.types import Trajectory
from toolwright.wire import trajectory_to_proto

Settings = Mapping[str, str]
"""What a collection belongs to, by names that people know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """What became of one task.

    refused: of each filtered trajectory, in order, the criteria that said no. marks and kept: of
    the trajectories that stay. rows: of each export. untold: why a kept trajectory is not in an
    export. read, written: tokens of the policy. seconds: of rolling out, in all lives until now.
    bad: why no trajectory could be made of it.
    """

    position: int
    task_id: str
    verdicts: Sequence[Verdict] = ()
    refused: Sequence[Sequence[str]] = ()
    marks: Sequence[str] = ()
    kept: Sequence[Trajectory] = ()
    rows: Mapping[Layout, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    untold: Mapping[Layout, Sequence[str]] = field(default_factory=dict)
    read: int = 0
    written: int = 0
    seconds: float = 0.0
    bad: str = ""


class Store:
    """`open` it, `add` to it, `finish` it; `close` in every case."""

    def __init__(
        self, output: Path, *, layouts: Sequence[Layout] = (), shard_size: int | None = None
    ) -> None:
        self.output = output
        self.layouts = tuple(layouts)
        self.totals = Totals()
        self.seen: set[str] = set()
        """Marks of what was kept."""
        self.shards = Shards(output, layouts, shard_size)
        self.yield_file = output.with_name(output.name + ".yield.json")
        self._lines = Lines(output.with_name(output.name + ".progress.jsonl"))
        self._shard = 0
        self._held = 0
        """Trajectories in the shard."""
        self._sizes = [0 for _ in self.shards.files(0)]
        self._decided = bytearray()
        self._adding = asyncio.Lock()
        self._lock: BinaryIO | None = None

    @property
    def full(self) -> bool:
        """The disk is full: a task waits with its trajectories."""
        return self._lines.full

    @property
    def files(self) -> int:
        """Files of trajectories."""
        return self._shard + 1

    def is_decided(self, position: int) -> bool:
        return position < len(self._decided) and bool(self._decided[position])

    async def open(self, settings: Settings) -> None:
        """Takes up what an earlier life has. StartupError where that was another collection, where
        a part of it is gone, where OUTPUT is something else, or where another process has it."""
        self.output.parent.mkdir(parents=True, exist_ok=True)
        if not self._lines.file.exists():
            self.shards.refuse_strangers()
        self._take_lock()
        self._lines.mend_end()
        rows = self._rows()
        head, good = next(rows, ({}, 0))
        first = next(rows, None)
        if first is None:  # nothing was decided by it yet
            os.truncate(self._lines.file, 0)
            await self._lines.append({"settings": dict(settings)})
        else:
            self._check(head.get("settings") or {}, settings)
            sizes = {
                int(row["shard"]): row["sizes"]
                for row, _ in chain((first,), rows)
                if "position" in row
            }
            self.shards.check_there(sizes)
            self._take_up(good)
        self.shards.take_up(self._shard, self._sizes)

    async def add(self, decided: Decided) -> None:
        """Writes a task's outcome; on a full disk it waits for space."""
        exports = (decided.rows.get(layout, ()) for layout in self.layouts)
        data = [b"".join(map(_message, decided.kept))]
        data += [b"".join(map(json_line, rows)) for rows in exports]
        async with self._adding:
            await self._write(decided, data)

    async def spent(self, seconds: float) -> None:
        """Of rolling out in all lives, where no task's line says so."""
        await self._lines.append({"seconds": seconds})
        self.totals.seconds = seconds

    async def _write(self, decided: Decided, data: Sequence[bytes]) -> None:
        size, new = self.shards.size, len(decided.kept)
        if size is not None and new and self._held and self._held + new > size:
            self.shards.finish(self._shard, self._sizes)
            self._next_shard(self._shard + 1)
        for file, piece in zip(self.shards.files(self._shard), data, strict=True):
            if piece:
                await self._append(unfinished_of(file), piece)
        sizes = [size + len(piece) for size, piece in zip(self._sizes, data, strict=True)]
        row = {
            "position": decided.position,
            "task_id": decided.task_id,
            "verdicts": [str(verdict) for verdict in decided.verdicts],
            "refused": [list(names) for names in decided.refused],
            "marks": list(decided.marks),
            "untold": {str(layout): list(found) for layout, found in decided.untold.items()},
            "read": decided.read,
            "written": decided.written,
            "seconds": decided.seconds,
            "bad": decided.bad,
            "shard": self._shard,
            "sizes": sizes,
        }
        await self._lines.append(row)
        self._enter(row)

    def finish(self) -> None:
        """OUTPUT and the exports are there, whole and durable."""
        self.shards.finish(self._shard, self._sizes)

    def tell_yield(self, data: bytes) -> None:
        """OUTPUT.yield.json is there whole, or as it was before. OSError."""
        unfinished = unfinished_of(self.yield_file)
        unfinished.write_bytes(data)
        unfinished.replace(self.yield_file)

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

    def _rows(self) -> Iterator[tuple[dict[str, Any], int]]:
        """The lines, each with where it ends. StartupError for one that cannot be read before one
        that can: its trajectories are in the files, and its task would be done again."""
        unread = 0
        for number, (row, end) in enumerate(self._lines.read_with_ends(), 1):
            if row is None:
                unread = unread or number
            elif unread:
                raise StartupError(
                    f"{self._lines.file}: line {unread} cannot be read, and later ones can: put "
                    "the file back as it was, cut it before that line so that the tasks from "
                    "there on are done again, or choose another --output"
                )
            else:
                yield row, end

    def _take_up(self, good: int) -> None:
        """Enters the lines whose trajectories are there, and cuts the others. good: where the first
        line ends."""
        there: dict[int, list[int]] = {}
        for number, (row, end) in enumerate(self._rows()):
            if number == 0:
                continue
            if "position" in row:
                shard = int(row["shard"])
                found = there.setdefault(shard, self.shards.sizes(shard))
                if any(size > has for size, has in zip(row["sizes"], found, strict=True)):
                    break  # a power cut took what the line speaks of
                self._enter(row)
            else:
                self.totals.seconds = max(self.totals.seconds, row["seconds"])
            good = end
        if good < self._lines.file.stat().st_size:
            os.truncate(self._lines.file, good)

    def _next_shard(self, shard: int) -> None:
        self._shard, self._held = shard, 0
        self._sizes = [0 for _ in self._sizes]

    def _enter(self, row: Mapping[str, Any]) -> None:
        position = int(row["position"])
        if self.is_decided(position):
            return
        self._decided.extend(bytes(max(0, position + 1 - len(self._decided))))
        self._decided[position] = 1
        if row["shard"] != self._shard:
            self._next_shard(int(row["shard"]))
        self._held += len(row["marks"])
        self._sizes = list(row["sizes"])
        self.seen.update(row["marks"])
        self.totals.enter(row)


def _message(trajectory: Trajectory) -> bytes:
    out = BytesIO()
    serialize_length_prefixed(trajectory_to_proto(trajectory), out)
    return out.getvalue()
