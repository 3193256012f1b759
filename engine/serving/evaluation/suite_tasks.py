"""The rows of a suite: the first `n` positions of its source, or chosen ones, drawn one at a time.

A position with an unusable row stays a position. Row i of a suite is the row of the same position
of its source in every evaluation, whichever other rows are bad.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from pathlib import Path

from engine.config import Suite
from engine.core.tasks import BadRow, DrawnTask, TaskSource
from engine.core.tasks.source import SourceEnded
from engine.errors import StartupError
from toolwright.types import WeightVersion


class SuiteTasks:
    """The source of one suite. A file is opened once; a function is called anew for every walk."""

    def __init__(
        self,
        suite: Suite,
        folder: Path,
        *,
        max_bad_rows: int,
        positions: Sequence[int] | None = None,
    ) -> None:
        """positions: one for each of the suite's n rows, ascending; None = the first n. A repeated
        position is the same task again."""
        self._suite = suite
        self._positions = range(suite.n) if positions is None else positions
        self._folder = folder
        self._max_bad_rows = max_bad_rows
        self.run = ""
        """First lineage of the run whose weights are evaluated; "" outside of a run."""
        self._file: TaskSource | None = None

    async def open(self) -> str:
        """Digest that identifies the source. Raises StartupError if the source cannot be used or is
        too short."""
        source = await self._fresh()
        rows, least = source.rows, self._positions[-1] + 1
        if rows is not None:
            self._file = source
            if rows < least:
                raise self._too_short(rows)
        else:
            try:
                await source.at(least - 1)
            except BadRow:
                pass  # the row exists, which is enough
            except SourceEnded as error:
                raise self._too_short(await self._count()) from error
            finally:
                source.close()
        laid = self._suite.metadata
        return f"{source.identity!r} with {laid!r}" if laid else repr(source.identity)

    async def walk(
        self, wanted: Callable[[int], bool], *, version: WeightVersion
    ) -> AsyncGenerator[tuple[int, DrawnTask | BadRow], None]:
        """(index, its task or the reason without one) of the wanted rows, in order. version: the
        weights that are evaluated."""
        source = self._file or await self._fresh()
        last, drawn = -1, None
        try:
            for index, position in enumerate(self._positions):
                if not wanted(index):
                    continue
                if drawn is None or position != last:
                    last, drawn = position, await self._drawn(source, position, version)
                yield index, drawn
        finally:
            if source is not self._file:
                source.close()

    async def _drawn(
        self, source: TaskSource, position: int, version: WeightVersion
    ) -> DrawnTask | BadRow:
        try:
            return self._laid_over(await source.at(position), version)
        except BadRow as bad:
            return bad

    def _laid_over(self, drawn: DrawnTask, version: WeightVersion) -> DrawnTask:
        """The task with the suite's metadata over its own. "{version}" stands for the weights,
        "{iteration}" for the run's iteration."""
        named = replace(drawn, task=replace(drawn.task, name=self._suite.task))
        iteration = f"{self.run}.{version.step}" if self.run else ""
        return named.with_metadata(self._suite.metadata, version=str(version), iteration=iteration)

    def position(self, index: int) -> int:
        """Position of a row in the suite's source."""
        return self._positions[index]

    @property
    def file(self) -> TaskSource | None:
        """The source if it is a file and open."""
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
        """Number of tasks of a function that ends."""
        source, found = await self._fresh(), 0
        try:
            for found in range(self._positions[-1] + 1):
                try:
                    await source.at(found)
                except BadRow:
                    continue
        except SourceEnded:
            return found
        finally:
            source.close()
        return self._positions[-1] + 1

    def _too_short(self, found: int) -> StartupError:
        suite = self._suite
        return StartupError(
            f"evaluation suite {suite.name!r}: {suite.source} has {found} tasks, "
            f"{self._positions[-1] + 1} are needed: give it more, or lower the suite's n"
        )
