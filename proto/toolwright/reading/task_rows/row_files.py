"""Rows of JSONL and Parquet files: how a line is bounded, and how a batch becomes rows.

A line or a cell that cannot be read costs its row alone. pyarrow is imported by the functions that
need it: the extras `engine` and `tasks` install it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from toolwright.reading.task_rows.refusal import RowRefused

MOST_ROW_BYTES = 64 << 20
"""Largest row, in bytes: a larger task could not be journaled or sent."""
CHUNK = 1 << 20
_BATCH = 64
"""Rows of a Parquet file in memory at a time, media included."""


class NotParquet(ValueError):
    """The file is not Parquet, or it was cut off."""


def lines_of(
    opened: BinaryIO, seen: Callable[[bytes], None] = lambda piece: None
) -> Iterator[tuple[bytes | None, int]]:
    """(line, its length in bytes), in order; None in place of a line that is longer than a row may
    be. seen: gets every byte of the file, to hash it."""
    while line := opened.readline(MOST_ROW_BYTES + 1):
        seen(line)
        length = len(line)
        if length <= MOST_ROW_BYTES or line.endswith(b"\n"):
            yield line, length
            continue
        while not line.endswith(b"\n") and (line := opened.readline(CHUNK)):
            seen(line)
            length += len(line)
        yield None, length


def too_long() -> RowRefused:
    """The refusal of a line that `lines_of` gave as None."""
    return RowRefused("too_long", f"longer than {MOST_ROW_BYTES} bytes")


def open_parquet(file: Path) -> Any:
    """A pyarrow ParquetFile that reads a piece at a time. Raises NotParquet."""
    import pyarrow.parquet  # heavy, and only some files are Parquet

    try:
        return pyarrow.parquet.ParquetFile(file, buffer_size=CHUNK, pre_buffer=False)
    except (pyarrow.ArrowException, OSError) as error:  # a file that was cut off raises either
        raise NotParquet(f"{file} is not Parquet, or is cut: {error}") from error


def parquet_rows(
    opened: Any, *, groups: Iterable[int] | None = None, columns: list[str] | None = None
) -> Iterator[dict[str, Any] | RowRefused]:
    """The rows of an open file, a RowRefused in place of one with a cell that Python cannot hold:
    text that is not UTF-8, a date beyond the calendar. Raises NotParquet if the file is cut.

    groups: row groups to read; all by default. columns: likewise.
    """
    import pyarrow

    chosen = None if groups is None else list(groups)
    try:
        for batch in opened.iter_batches(_BATCH, row_groups=chosen, columns=columns):
            yield from _rows_of(batch)
    except (pyarrow.ArrowException, OSError) as error:
        raise NotParquet(str(error)) from error


def _rows_of(batch: Any) -> Iterator[dict[str, Any] | RowRefused]:
    try:
        yield from batch.to_pylist()
    except (ValueError, OverflowError):
        for number in range(batch.num_rows):
            try:
                (row,) = batch.slice(number, 1).to_pylist()
            except (ValueError, OverflowError) as error:
                yield RowRefused("unreadable_cell", f"a cell cannot be read: {error}")
            else:
                yield row
