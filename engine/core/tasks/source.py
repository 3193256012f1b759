"""The endless stream of tasks that a recipe names: a file's rows, or what a function yields.

Invariants
- Position i names the same task in this life and the next: files are shuffled anew every epoch by
  (seed, epoch), functions get the seed. A bad row keeps its position, which has no task.
- A function is walked forward only, by one thread; no position of it is asked for twice.
- A task's media are read when its turn comes, and not kept.
- The event loop never waits for a file or a function.
"""

from __future__ import annotations

import inspect
import random
from array import array
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from engine.core.daemon_thread import DaemonThread
from engine.core.images.media import Media, Source, read_media
from engine.core.tasks.bad_rows import BadRow
from engine.core.tasks.files import RowFile, open_rows
from engine.core.tasks.rows import as_read, check_task, read_media_sources, read_task
from engine.errors import EngineError, StartupError
from toolwright.imports import ImportPathError, load_object
from toolwright.reading.task_rows.refusal import RowRefused
from toolwright.types import MediaRef, Purpose, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceIdentity:
    """What tells one source from another: the same identity, the same task at each position.

    name: as the recipe has it, a file or an import path. sha256: of the file; empty for a function.
    """

    name: str
    sha256: str
    seed: int
    shuffle: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnTask:
    """The task of one position, with what `task.media` refers to."""

    position: int
    task: Task
    media: tuple[Media, ...] = ()
    where: str = ""

    def refused(self, kind: str, reason: str) -> BadRow:
        """The task cannot be used after all: no prompt can be made of it, a service will not open a
        session for it."""
        return BadRow(
            position=self.position,
            task_id=self.task.id,
            kind=kind,
            reason=reason,
            where=self.where,
        )


class SourceRewound(EngineError):
    """A position of a function was asked for that lies behind."""


class TaskSource:
    """One source. Construct it off the loop, with `opened`."""

    def __init__(
        self, source: str, folder: Path, *, seed: int, shuffle: bool, max_bad_rows: int = 100
    ) -> None:
        """Reads a file from end to end. StartupError when the source cannot be used."""
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
        """A source, its file read in a thread. StartupError when it cannot be used."""
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
        """Rows of the file, bad ones too; None for a function."""
        return len(self._file) if self._file else None

    @property
    def bad_rows(self) -> int:
        """Rows of the file that were found to be no tasks when it was opened. Others may turn out
        to be none when their turn comes: images that cannot be read, for one."""
        return len(self._file.bad) if self._file else 0

    def doubts(self) -> list[str]:
        """Sentences of what is seldom meant of the file's rows."""
        return self._file.doubts.sentences() if self._file else []

    def answers_in_metadata(self) -> str:
        """A sentence on answers that stand in the file's metadata; "" for none, or no file."""
        return self._file.doubts.answers_in_metadata() if self._file else ""

    @property
    def questions(self) -> Sequence[int]:
        """A mark of each question of the file, in row order; empty for a function."""
        return self._file.doubts.questions if self._file else ()

    def first_bad_rows(self, most: int) -> list[str]:
        """The first rows that are no tasks, in the order of the file: place and reason of each."""
        if self._file is None:
            return []
        numbers = sorted(self._file.bad)[:most]
        return [f"{self._file.where(number)}: {self._file.bad[number]}" for number in numbers]

    async def at(self, position: int) -> DrawnTask:
        """The task of a position, from 0.

        BadRow where that position has none, whenever it is asked for. SourceRewound for a position
        of a function that lies behind: who needs a task again keeps it. StartupError where a
        function ended or raised, or the file was changed.
        """
        if self._thread is None:
            self._thread = DaemonThread("tasks")
        drawn: DrawnTask = await self._thread.call(self._at, position)
        return drawn

    async def first(self, n: int) -> AsyncIterator[DrawnTask]:
        """The first n tasks that can be used, each read when it is asked for, whatever was walked:
        a pass of its own. StartupError when the source has fewer."""
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
            f"task source {self._name} has {found} tasks, {n} are asked: give it more, or "
            "lower n of the evaluation suite that names it"
        )

    def close(self) -> None:
        """Ends the thread."""
        if self._thread is not None:
            self._thread.end()
            self._thread = None

    def _again(self) -> TaskSource:
        """The same source at its beginning: the same open file, in the same thread."""
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
                f"task source {self._name}: position {position} lies behind position "
                f"{self._next}; a function is walked forward only"
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
                f"task source {self._name} ended after {self._next} tasks; "
                "a training source never ends"
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
    """Which row a position is: all rows in every epoch, shuffled by (seed, epoch)."""

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
    if (suffix := Path(source).suffix) in OTHER_FILES:
        raise StartupError(
            f"task source {source!r}: {suffix} is not read: write .jsonl, a JSON object with "
            '"prompt" and "answer" a line, or Parquet'
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
    """The same task in the other lane."""
    return replace(task, purpose=purpose)
