"""The rows of a suite: `n` positions of its source, drawn one at a time.

They are the first ones, or those that `data_source` and `subset` choose of a file. A position with
an unusable row stays a position: row i of a suite is the same row in every evaluation, whichever
other rows are bad. With `data_source` unusable rows are left out: they have no data source.
"""

from __future__ import annotations

from array import array
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

from engine.config import Suite
from engine.core.tasks import BadRow, DrawnTask, TaskSource
from engine.core.tasks.row_index import RowIndex
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
        """positions: one for each row, ascending, among the suite's n; None = each once. A
        repeated position is the same task again."""
        self._suite = suite
        self._positions: Sequence[int] = range(suite.n) if positions is None else positions
        self._folder = folder
        self._max_bad_rows = max_bad_rows
        self.run = ""
        """First lineage of the run whose weights are evaluated; "" outside of a run."""
        self._file: TaskSource | None = None

    async def open(self) -> str:
        """Digest that identifies the rows. Raises StartupError if the source cannot be used or is
        too short."""
        suite, source = self._suite, await self._fresh()
        chosen = ""
        if source.index is not None:
            self._file = source
            self._positions = self._of_file(source.index, source.rows or 0)
            if suite.data_source or suite.subset != "first":
                chosen = f" of {suite.data_source!r}, {suite.subset} {suite.n}"
                chosen += f" by {suite.subset_seed}" if suite.subset == "random" else ""
        else:
            await self._check_function(source)
        laid = suite.metadata
        name = f"{source.identity!r}{chosen}"
        return f"{name} with {laid!r}" if laid else name

    def _of_file(self, index: RowIndex, rows: int) -> Sequence[int]:
        """Numbers of the file's rows, one for each position of the suite."""
        suite = self._suite
        own = index.rows_of(suite.data_source) if suite.data_source else range(rows)
        least = suite.n if suite.subset == "random" else self._positions[-1] + 1
        if suite.data_source and not own:
            raise StartupError(
                f"evaluation suite {suite.name!r}: no row of {suite.source} has the data_source "
                f"{suite.data_source!r}; it has {', '.join(index.sources()) or 'no rows'}"
            )
        if len(own) < least:
            raise self._too_short(len(own), least)
        if suite.subset == "random":
            own = sorted(Random(suite.subset_seed).sample(own, suite.n))
        if isinstance(own, range):
            return self._positions
        return array("L", (own[position] for position in self._positions))

    async def _check_function(self, source: TaskSource) -> None:
        """Raises StartupError if the function has too few tasks, or rows are to be chosen."""
        suite = self._suite
        if suite.data_source or suite.subset != "first":
            source.close()
            raise StartupError(
                f"evaluation suite {suite.name!r}: data_source and subset choose rows of a file, "
                f"and {suite.source} is a function: leave them out, or let it yield these tasks"
            )
        try:
            await source.at(self._positions[-1])
        except BadRow:
            pass  # the row exists, which is enough
        except SourceEnded as error:
            raise self._too_short(await self._count(), self._positions[-1] + 1) from error
        finally:
            source.close()

    @property
    def questions(self) -> list[int] | None:
        """A hash of each question (see RowIndex); None if the source is a function."""
        index = self._file.index if self._file is not None else None
        return None if index is None else index.questions(self._positions)

    def one_source_of_several(self) -> str:
        """A sentence if the rows have one data source and the file has more; "" otherwise."""
        index = self._file.index if self._file is not None else None
        if index is None or self._suite.data_source:
            return ""
        own, every = index.sources(self._positions), index.sources()
        if len(own) != 1 or len(every) == 1:
            return ""
        draw = "" if self._suite.subset == "random" else "subset = 'random', or "
        return (
            f"all {self._suite.n} rows are of the data source {own[0]!r}, and the file has "
            f"{len(every)}: set {draw}data_source to the one that is meant"
        )

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

    def _too_short(self, found: int, needed: int) -> StartupError:
        suite = self._suite
        own = f" of the data source {suite.data_source!r}" if suite.data_source else ""
        return StartupError(
            f"evaluation suite {suite.name!r}: {suite.source} has {found} tasks{own}, "
            f"{needed} are needed: give it more, or lower the suite's n"
        )
