"""The endless stream of tasks of a recipe: rows of a file, or tasks that a function yields.

Invariants
- Position i has the same task after a restart: files are shuffled in every epoch by (seed, epoch),
  and functions get the seed. A bad row keeps its position, which has no task.
- A function is walked forward only, by one thread; no position is read twice.
- A task's media are read with the task and not kept.
- The event loop never waits for a file or a function.
"""

from __future__ import annotations

import inspect
import random
from array import array
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

from engine.core.daemon_thread import DaemonThread
from engine.core.images.media import Media, Source, read_media
from engine.core.tasks.bad_rows import BadRow
from engine.core.tasks.files import RowFile, open_rows
from engine.core.tasks.row_index import RowIndex
from engine.core.tasks.rows import as_read, check_task, read_media_sources, read_task
from engine.errors import EngineError, StartupError
from toolwright.imports import ImportPathError, load_object
from toolwright.reading.task_rows.refusal import RowRefused
from toolwright.recipe import SUBMITTED
from toolwright.text.filling import filled_texts
from toolwright.types import MediaRef, Purpose, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceIdentity:
    """Identity of a source: equal identities have equal tasks at each position."""

    name: str
    """File or import path, as in the recipe."""
    sha256: str
    """Hash of the file; "" for a function."""
    seed: int
    shuffle: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnTask:
    """The task of one position, with its media."""

    position: int
    task: Task
    media: tuple[Media, ...] = ()
    where: str = ""

    def with_metadata(self, metadata: Mapping[str, Any], **values: str) -> DrawnTask:
        """The task with `metadata` over its own. "{name}" stands for the value of that name."""
        if not metadata:
            return self
        laid = {**self.task.metadata, **filled_texts(metadata, values)}
        return replace(self, task=replace(self.task, metadata=laid))

    def refused(self, kind: str, reason: str) -> BadRow:
        """The error for a task that turns out unusable: without a prompt, or without a session."""
        return BadRow(
            position=self.position,
            task_id=self.task.id,
            kind=kind,
            reason=reason,
            where=self.where,
        )


class SourceRewound(EngineError):
    """An earlier position of a function was requested."""


class TaskSource:
    """One source. `opened` constructs it outside of the event loop."""

    def __init__(
        self, source: str, folder: Path, *, seed: int, shuffle: bool, max_bad_rows: int = 100
    ) -> None:
        """Reads a file from end to end. Raises StartupError if the source cannot be used."""
        self._name = source
        self._seed = seed
        self._shuffle = shuffle
        self._max_bad_rows = max_bad_rows
        self._folder = folder
        self._file: RowFile | None = None
        if source.endswith((".jsonl", ".parquet")):
            self._path = folder / source
            self._file = open_rows(self._path, max_bad_rows=max_bad_rows)
        else:
            self._function = _function(source, folder)
        self._order = _Order(len(self._file) if self._file else 0, seed=seed, shuffle=shuffle)
        self._walk: Iterator[object] | None = None
        self._next = 0
        self._thread: DaemonThread | None = None

    @classmethod
    async def opened(
        cls, source: str, folder: Path, *, seed: int, shuffle: bool, max_bad_rows: int = 100
    ) -> TaskSource:
        """A source whose file is read in a thread. Raises StartupError if it cannot be used."""
        thread = DaemonThread("tasks")
        made: TaskSource = await thread.call(
            lambda: cls(source, folder, seed=seed, shuffle=shuffle, max_bad_rows=max_bad_rows)
        )
        made._thread = thread
        return made

    @property
    def identity(self) -> SourceIdentity:
        return SourceIdentity(
            name=self._name,
            sha256=self._file.sha256 if self._file else "",
            seed=self._seed,
            shuffle=self._shuffle,
        )

    @property
    def rows(self) -> int | None:
        """Number of rows in the file, bad ones included; None for a function."""
        return len(self._file) if self._file else None

    @property
    def bad_rows(self) -> int:
        """Number of rows that were found unusable when the file was opened.

        More may be found later, such as rows with unreadable images.
        """
        return len(self._file.bad) if self._file else 0

    def warnings(self) -> list[str]:
        """Warnings about the file's rows, as sentences."""
        return self._file.warnings.sentences() if self._file else []

    def answers_in_metadata(self) -> str:
        """A sentence on answers in the file's metadata; "" without such answers."""
        return self._file.warnings.answers_in_metadata() if self._file else ""

    @property
    def index(self) -> RowIndex | None:
        """Questions and data sources of the file's rows; None for a function."""
        return self._file.index if self._file else None

    def first_bad_rows(self, most: int) -> list[str]:
        """Position and reason of the first unusable rows, in the order of the file."""
        if self._file is None:
            return []
        numbers = sorted(self._file.bad)[:most]
        return [f"{self._file.where(number)}: {self._file.bad[number]}" for number in numbers]

    async def at(self, position: int) -> DrawnTask:
        """The task of a position, from 0.

        Raises BadRow for a position without a task, and SourceRewound for an earlier position of a
        function. Raises StartupError if a function ended or raised, or if the file changed.
        """
        if self._thread is None:
            self._thread = DaemonThread("tasks")
        drawn: DrawnTask = await self._thread.call(self._at, position)
        return drawn

    async def first(self, n: int) -> AsyncIterator[DrawnTask]:
        """The first n usable tasks, each read on demand, in a pass of its own.

        Raises StartupError if the source has fewer.
        """
        fresh = self._again()
        found, last = 0, self.rows
        for position in count():
            if found == n:
                return
            if position == last:
                break
            try:
                drawn = await fresh.at(position)
            except BadRow as bad:
                if position - found > self._max_bad_rows:
                    raise StartupError(f"task source {self._name}: {bad}") from bad
            except SourceEnded:
                break
            else:
                found += 1
                yield drawn
        raise StartupError(
            f"task source {self._name} has {found} tasks, but {n} are needed: add tasks, or lower "
            "`n` of the evaluation suite"
        )

    def close(self) -> None:
        """Ends the thread."""
        if self._thread is not None:
            self._thread.end()
            self._thread = None

    def _again(self) -> TaskSource:
        """The same source from its beginning, with the same open file and thread."""
        if self._thread is None:
            self._thread = DaemonThread("tasks")
        made = copy(self)
        made._walk, made._next = None, 0
        return made

    def _at(self, position: int) -> DrawnTask:
        if self._file is not None:
            return self._at_row(self._file, position)
        return self._yielded(position)

    def _at_row(self, file: RowFile, position: int) -> DrawnTask:
        number = self._order.row(position)
        name = f"{self._path.stem}-{number}"
        where = file.where(number)
        try:
            row = file.row(number)
            task = read_task(row, name=name, data_source=self._path.stem)
            name = task.id
            check_task(task)
            media = [_read(source) for source in read_media_sources(row, self._path.parent)]
        except RowRefused as refused:
            raise BadRow(
                position=position,
                task_id=name,
                kind=refused.kind,
                reason=str(refused),
                where=where,
            ) from refused
        refs = [MediaRef(blob=one.blob, token_offset=0, placeholder_tokens=0) for one in media]
        return DrawnTask(
            position=position,
            task=replace(task, media=tuple(refs)),
            media=tuple(media),
            where=where,
        )

    def _yielded(self, position: int) -> DrawnTask:
        if position < self._next:
            raise SourceRewound(
                f"task source {self._name}: position {position} is before position {self._next}; a "
                "function is walked forward only"
            )
        try:
            if self._walk is None:
                self._walk = iter(self._function(self._seed))
            while True:
                task = next(self._walk)
                self._next += 1
                if self._next > position:
                    break
        except StopIteration as error:
            raise SourceEnded(
                f"task source {self._name} ended after {self._next} tasks: let it yield more"
            ) from error
        except (Exception, SystemExit) as error:
            raise StartupError(
                f"task source {self._name} raised {error!r} at position {self._next}"
            ) from error
        try:
            task = as_read(task)
        except RowRefused as refused:
            raise BadRow(
                position=position,
                task_id=task.id if isinstance(task, Task) else f"{self._name}-{position}",
                kind=refused.kind,
                reason=f"task source {self._name} yields {refused}",
            ) from refused
        return DrawnTask(position=position, task=task)


class SourceEnded(StartupError):
    """A function has no more tasks."""


class _Order:
    """The row of a position: every epoch has all rows, shuffled by (seed, epoch)."""

    def __init__(self, rows: int, *, seed: int, shuffle: bool) -> None:
        self._rows = rows
        self._seed = seed
        self._shuffle = shuffle
        self._epoch = -1
        self._shuffled = array("Q")

    def row(self, position: int) -> int:
        epoch, number = divmod(position, self._rows)
        if not self._shuffle:
            return number
        if epoch != self._epoch:
            self._shuffled = array("Q", range(self._rows))
            random.Random(f"{self._seed}.{epoch}").shuffle(self._shuffled)
            self._epoch = epoch
        return self._shuffled[number]


def _read(source: Source) -> Media:
    try:
        return read_media(source)
    except ValueError as error:
        raise RowRefused("images", str(error)) from error


OTHER_FILES = (".csv", ".tsv", ".json", ".txt", ".yaml", ".yml", ".arrow", ".xlsx")


def _function(source: str, folder: Path) -> Callable[[int], Iterable[object]]:
    if source == SUBMITTED:
        raise StartupError(
            f"task source {source!r}: only `engine serve` takes submitted tasks, and only for "
            "training; name a file or a function here"
        )
    if (suffix := Path(source).suffix) in OTHER_FILES:
        raise StartupError(
            f"task source {source!r}: {suffix} is not supported: write .jsonl, with a JSON object "
            'of "prompt" and "answer" in each line, or Parquet'
        )
    try:
        function = load_object(source, folder)
    except ImportPathError as error:
        raise StartupError(f"task source {error}") from error
    if not callable(function) or not inspect.signature(function).parameters:
        raise StartupError(
            f"task source {source!r}: write a function of one argument, the seed, that yields "
            "toolwright.types.Task"
        )
    return function  # type: ignore[no-any-return]


def for_purpose(task: Task, purpose: Purpose) -> Task:
    """The task with another purpose."""
    return replace(task, purpose=purpose)
