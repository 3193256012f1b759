"""The rows of a suite: the first `n` positions of its source, drawn one at a time.

A position whose row cannot be used stays a position: row i of a suite is row i of its source,
whatever other rows are bad, in every evaluation.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from pathlib import Path

from engine.config import Suite
from engine.errors import StartupError
from engine.tasks import BadRow, DrawnTask, TaskSource
from engine.tasks.source import SourceEnded
from toolwright.filling import filled
from toolwright.types import WeightVersion


class SuiteTasks:
    """The source of one suite. A file is opened once, a function is called anew for every walk."""

    def __init__(self, suite: Suite, folder: Path, *, max_bad_rows: int) -> None:
        self._suite = suite
        self._folder = folder
        self._max_bad_rows = max_bad_rows
        self._file: TaskSource | None = None

    async def open(self) -> str:
        """What tells the source from another. StartupError when it cannot be used or is too
        short."""
        source = await self._fresh()
        rows, asked = source.rows, self._suite.n
        if rows is not None:
            self._file = source
            if rows < asked:
                raise self._too_short(rows)
        else:
            try:
                await source.at(asked - 1)
            except BadRow:
                pass  # it is there, which is all that is asked
            except SourceEnded as error:
                raise self._too_short(await self._count()) from error
            finally:
                source.close()
        laid = self._suite.metadata
        return f"{source.identity!r} with {laid!r}" if laid else repr(source.identity)

    async def walk(
        self, wanted: Callable[[int], bool], *, version: WeightVersion
    ) -> AsyncGenerator[tuple[int, DrawnTask | BadRow], None]:
        """(index, its task or why there is none) of the wanted rows, in order. version: the
        weights that are evaluated."""
        source = self._file or await self._fresh()
        try:
            for index in range(self._suite.n):
                if not wanted(index):
                    continue
                try:
                    yield index, self._laid_over(await source.at(index), version)
                except BadRow as bad:
                    yield index, bad
        finally:
            if source is not self._file:
                source.close()

    def _laid_over(self, drawn: DrawnTask, version: WeightVersion) -> DrawnTask:
        """The task with the suite's metadata over its own; "{version}" names the weights."""
        if not self._suite.metadata:
            return drawn
        laid = {
            key: filled(value, {"version": str(version)}) if isinstance(value, str) else value
            for key, value in self._suite.metadata.items()
        }
        metadata = {**drawn.task.metadata, **laid}
        return replace(drawn, task=replace(drawn.task, metadata=metadata))

    @property
    def file(self) -> TaskSource | None:
        """Its source where that is a file and open."""
        return self._file

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    async def _fresh(self) -> TaskSource:
        suite = self._suite
        return await TaskSource.opened(
            suite.source,
            self._folder,
            seed=suite.seed,
            shuffle=False,
            max_bad_rows=self._max_bad_rows,
        )

    async def _count(self) -> int:
        """Tasks of a function that ends."""
        source, found = await self._fresh(), 0
        try:
            for found in range(self._suite.n):
                try:
                    await source.at(found)
                except BadRow:
                    continue
        except SourceEnded:
            return found
        finally:
            source.close()
        return self._suite.n

    def _too_short(self, found: int) -> StartupError:
        suite = self._suite
        return StartupError(
            f"evaluation suite {suite.name!r}: {suite.source} has {found} tasks, {suite.n} are "
            "asked: give it more, or lower the suite's n"
        )
