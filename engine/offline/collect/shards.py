"""The files of kept trajectories: OUTPUT and its exports, or shards of them in the folder OUTPUT.

    OUTPUT, OUTPUT.jsonl, OUTPUT.openai.jsonl
    OUTPUT/00000.trajectories, OUTPUT/00000.jsonl, OUTPUT/00001.trajectories, ...

Invariants
- A file that is still written to ends in `.unfinished`; any other file is whole and durable.
- Bytes of undecided tasks are cut before a file is finished.
- A finished file stays as it is until the file that continues it is whole.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from engine.errors import StartupError
from engine.offline.enums import ExportLayout
from engine.offline.output_files import UNFINISHED

_COPY = ".copy"
_SHARD = re.compile(r"([0-9]{5,})\.[a-z.]+")


class Shards:
    """size: most trajectories of a shard; None = one file, which is shard 0."""

    def __init__(self, output: Path, layouts: Sequence[ExportLayout], size: int | None) -> None:
        self.output = output
        self.size = size
        self.layouts = tuple(layouts)

    def files(self, shard: int) -> list[Path]:
        """The trajectories, then each export."""
        if self.size is None:
            exports = [self.output.with_name(self.output.name + o.suffix) for o in self.layouts]
            return [self.output, *exports]
        names = [".trajectories", *(one.suffix for one in self.layouts)]
        return [self.output / f"{shard:05d}{name}" for name in names]

    def refuse_existing(self) -> None:
        """Raises StartupError if OUTPUT exists; for a collection without a progress file."""
        there = self.output.exists()
        if there and self.size is not None and self.output.is_dir():
            there = any(self.output.iterdir())
        if there:
            raise StartupError(
                f"{self.output} exists already and was not written by `engine sample`: choose "
                "another --output"
            )

    def sizes(self, shard: int) -> list[int]:
        """Bytes of the shard's files, unfinished ones where there are any."""
        return [_size(found) for found in map(_latest, self.files(shard))]

    def check_there(self, sizes: Mapping[int, Sequence[int]]) -> None:
        """Raises StartupError if a completed shard, or a non-empty last shard, is missing.

        sizes: bytes of each file by shard.
        """
        last = max(sizes, default=0)
        for shard in range(last):
            for file in self.files(shard):
                if not file.exists():
                    raise _missing(file, "was whole")
        for file, size in zip(self.files(last), sizes.get(last, ()), strict=False):
            if size and not _latest(file).exists():
                raise _missing(file, f"held {size} bytes")

    def take_up(self, shard: int, sizes: Sequence[int]) -> None:
        """Makes the shard unfinished again, cut to `sizes`, and deletes later shards."""
        for file, size in zip(self.files(shard), sizes, strict=True):
            unfinished = unfinished_of(file)
            if file.exists() and not unfinished.exists():
                copy = file.with_name(file.name + _COPY)
                shutil.copyfile(file, copy)
                # Else a power cut could leave a short unfinished file, which takes precedence.
                _make_durable(copy)
                copy.replace(unfinished)
            if _size(unfinished) > size:
                os.truncate(unfinished, size)
        if self.size is not None and self.output.is_dir():
            for file in self.output.iterdir():
                found = _SHARD.fullmatch(file.name)
                if found and int(found[1]) > shard:
                    file.unlink()

    def finish(self, shard: int, sizes: Sequence[int]) -> None:
        """Makes the shard's files whole and durable, at `sizes`."""
        for file, size in zip(self.files(shard), sizes, strict=True):
            file.parent.mkdir(parents=True, exist_ok=True)
            with unfinished_of(file).open("ab") as out:
                out.truncate(size)
                os.fsync(out.fileno())
            unfinished_of(file).replace(file)
        _make_durable(self.files(shard)[0].parent)


def unfinished_of(file: Path) -> Path:
    return file.with_name(file.name + UNFINISHED)


def _latest(file: Path) -> Path:
    unfinished = unfinished_of(file)
    return unfinished if unfinished.exists() else file


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def _missing(file: Path, was: str) -> StartupError:
    return StartupError(f"{file} is missing and {was}: restore it, or choose another --output")


def _make_durable(path: Path) -> None:
    """Syncs a file's bytes, or the names in a folder."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
