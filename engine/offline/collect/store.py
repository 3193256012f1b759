"""The progress of `engine sample`: which tasks are decided, and what is kept of them.

OUTPUT.progress.jsonl has one line for each decided task. Trajectories go to files that end in
`.unfinished` (see `shards`) until OUTPUT is whole. The progress file stays, so that a larger --n or
budget continues from it. OUTPUT.yield.json holds the counts, OUTPUT.log.jsonl the log.

Invariants
- A task's trajectories are in the files before its line is. The line holds the lengths of the
  files; bytes beyond the last line are cut at the next start.
- If a file is shorter than a line says, that line and all later ones are cut: their tasks are open
  again. So is an unreadable end. A missing file, or an unreadable line before a readable one,
  refuses the start and changes nothing.
- All trajectories of a task are in one shard.
- The first line holds the settings: recipe, tasks, criteria and weights. A start with other
  settings is refused.
- One process at a time uses the files.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from google.protobuf.proto import serialize_length_prefixed

from engine.errors import StartupError
from engine.offline.collect.layouts import json_line
from engine.offline.collect.selection import SelectionOutcome, Totals
from engine.offline.collect.shards import Shards, unfinished_of
from engine.offline.enums import ExportLayout
from engine.offline.output_files import take_lock
from engine.offline.resume_settings import check_same_settings
from engine.serving.json_lines import JsonLines, append_whole, retry_while_full
from toolwright.types import Trajectory
from toolwright.wire import trajectory_to_proto

Settings = Mapping[str, str]
"""What every later start must repeat, under names that users know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecidedTask:
    """The result of one task."""

    position: int
    task_id: str
    outcomes: Sequence[SelectionOutcome] = ()
    """The outcome of each trajectory, in order."""
    refused: Sequence[Sequence[str]] = ()
    """Criteria that refused each filtered trajectory, in order."""
    examples: Mapping[str, str] = field(default_factory=dict)
    """Excerpt of a refused trajectory, for each criterion that had none before."""
    marks: Sequence[str] = ()
    """Mark of each kept trajectory."""
    kept: Sequence[Trajectory] = ()
    rows: Mapping[ExportLayout, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    """Rows of each export."""
    not_exported: Mapping[ExportLayout, Sequence[str]] = field(default_factory=dict)
    """Reasons for kept trajectories that an export lacks."""
    read: int = 0
    """Prompt tokens of all actions."""
    written: int = 0
    """Tokens that the policy wrote."""
    seconds: float = 0.0
    """Time of rolling out until now, restarts included."""
    bad: str = ""
    """Why the task cannot be used; "" for a usable one."""


class Store:
    """Call `open`, then `add`, then `finish`; `close` in every case."""

    def __init__(
        self, output: Path, *, layouts: Sequence[ExportLayout] = (), shard_size: int | None = None
    ) -> None:
        self.output = output
        self.layouts = tuple(layouts)
        self.totals = Totals()
        self.seen: set[str] = set()
        """Marks of kept trajectories."""
        self.shards = Shards(output, layouts, shard_size)
        self.yield_file = output.with_name(output.name + ".yield.json")
        self._lines = JsonLines(output.with_name(output.name + ".progress.jsonl"))
        self._shard = 0
        self._held = 0
        """Number of trajectories in the shard."""
        self._sizes = [0 for _ in self.shards.files(0)]
        self._decided = bytearray()
        self._adding = asyncio.Lock()
        self._lock: BinaryIO | None = None

    @property
    def full(self) -> bool:
        """The disk is full, and a task waits to be written."""
        return self._lines.full

    @property
    def files(self) -> int:
        """Number of files with trajectories."""
        return self._shard + 1

    def is_decided(self, position: int) -> bool:
        return position < len(self._decided) and bool(self._decided[position])

    async def open(self, settings: Settings) -> None:
        """Continues an earlier start, or begins.

        Raises StartupError for other settings, missing files, an OUTPUT that is not a collection's,
        or another process that uses it.
        """
        self.output.parent.mkdir(parents=True, exist_ok=True)
        if not self._lines.file.exists():
            self.shards.refuse_existing()
        self._lock = take_lock(self._lines.file, self.output, "engine sample")
        self._lines.cut_partial_line()
        rows = self._rows()
        head, good = next(rows, ({}, 0))
        first = next(rows, None)
        if first is None:  # no task is decided yet
            os.truncate(self._lines.file, 0)
            await self._lines.append({"settings": dict(settings)})
        else:
            advice = "use the same settings, or choose another --output"
            check_same_settings(self.output, head.get("settings") or {}, settings, advice)
            sizes = {
                int(row["shard"]): row["sizes"]
                for row, _ in chain((first,), rows)
                if "position" in row
            }
            self.shards.check_there(sizes)
            self._take_up(good)
        self.shards.take_up(self._shard, self._sizes)

    async def add(self, decided: DecidedTask) -> None:
        """Writes the result of a task; on a full disk it waits for space."""
        exports = (decided.rows.get(layout, ()) for layout in self.layouts)
        data = [b"".join(map(_message, decided.kept))]
        data += [b"".join(map(json_line, rows)) for rows in exports]
        async with self._adding:
            await self._write(decided, data)

    async def add_seconds(self, seconds: float) -> None:
        """Writes the total time of rolling out when no task's line holds it."""
        await self._lines.append({"seconds": seconds})
        self.totals.seconds = seconds

    async def _write(self, decided: DecidedTask, data: Sequence[bytes]) -> None:
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
            "verdicts": [str(outcome) for outcome in decided.outcomes],
            "refused": [list(names) for names in decided.refused],
            "marks": list(decided.marks),
            "untold": {str(layout): list(found) for layout, found in decided.not_exported.items()},
            "read": decided.read,
            "written": decided.written,
            "seconds": decided.seconds,
            "bad": decided.bad,
            "shard": self._shard,
            "sizes": sizes,
        }
        if decided.examples:
            row["examples"] = dict(decided.examples)
        await self._lines.append(row)
        self._enter(row)

    def finish(self) -> None:
        """Makes OUTPUT and the exports whole and durable."""
        self.shards.finish(self._shard, self._sizes)

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    async def _append(self, file: Path, data: bytes) -> None:
        def set_full(full: bool) -> None:
            self._lines.full = full

        await retry_while_full(lambda: append_whole(file, (data,)), file, set_full)

    def _rows(self) -> Iterator[tuple[dict[str, Any], int]]:
        """The lines, each with the byte at which it ends.

        Raises StartupError for an unreadable line before a readable one: its task would run again
        although its trajectories are in the files.
        """
        unread = 0
        for number, (row, end) in enumerate(self._lines.read_with_ends(), 1):
            if row is None:
                unread = unread or number
            elif unread:
                raise StartupError(
                    f"{self._lines.file}: line {unread} cannot be read, but later ones can: "
                    "restore "
                    "the file, delete that line and all after it to run their tasks again, or "
                    "choose another --output"
                )
            else:
                yield row, end

    def _take_up(self, good: int) -> None:
        """Enters the lines whose trajectories are in the files, and cuts the others.

        good: byte at which the first line ends.
        """
        there: dict[int, list[int]] = {}
        for number, (row, end) in enumerate(self._rows()):
            if number == 0:
                continue
            if "position" in row:
                shard = int(row["shard"])
                found = there.setdefault(shard, self.shards.sizes(shard))
                if any(size > has for size, has in zip(row["sizes"], found, strict=True)):
                    break  # a power cut took the trajectories of the line
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
