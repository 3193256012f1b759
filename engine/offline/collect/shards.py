"""The files that what is kept goes to: OUTPUT with an export a layout, or shards of them in the
folder OUTPUT.

    OUTPUT, OUTPUT.jsonl, OUTPUT.openai.jsonl
    OUTPUT/00000.trajectories, OUTPUT/00000.jsonl, OUTPUT/00001.trajectories, ...

Invariants
- A file that is written to ends in `.unfinished`; without it, it is whole and durable.
- What belongs to nothing that was decided is cut before a file is whole.
- A finished file stays what it is until the one that goes on from it is whole.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from engine.errors import StartupError
from engine.offline.collect.layouts import Layout

UNFINISHED = ".unfinished"
_COPY = ".copy"
_SHARD = re.compile(r"([0-9]{5,})\.[a-z.]+")


class Shards:
    """size: most trajectories of a shard; None = one file, which is shard 0."""

    def __init__(self, output: Path, layouts: Sequence[Layout], size: int | None) -> None:
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

    def refuse_strangers(self) -> None:
        """StartupError where OUTPUT is something else's, as nothing says that it is ours."""
        there = self.output.exists()
        if there and self.size is not None and self.output.is_dir():
            there = any(self.output.iterdir())
        if there:
            raise StartupError(f"{self.output} is there already; choose another --output")

    def sizes(self, shard: int) -> list[int]:
        """Bytes of the shard's files, unfinished ones where there are any."""
        return [_size(found) for found in map(_latest, self.files(shard))]

    def check_there(self, sizes: Mapping[int, Sequence[int]]) -> None:
        """StartupError where a file is gone that somebody has: one of a shard before the last,
        which was whole, or one of the last that held something. sizes: bytes by shard."""
        last = max(sizes, default=0)
        for shard in range(last):
            for file in self.files(shard):
                if not file.exists():
                    raise _gone(file, "was whole")
        for file, size in zip(self.files(last), sizes.get(last, ()), strict=False):
            if size and not _latest(file).exists():
                raise _gone(file, f"held {size} bytes")

    def take_up(self, shard: int, sizes: Sequence[int]) -> None:
        """The shard is unfinished again, as long as that; what came after it is gone."""
        for file, size in zip(self.files(shard), sizes, strict=True):
            unfinished = unfinished_of(file)
            if file.exists() and not unfinished.exists():
                copy = file.with_name(file.name + _COPY)
                shutil.copyfile(file, copy)
                # Else a power cut could leave the name with less, which is taken before the whole.
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
        """The shard's files are there, whole and durable."""
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


def _gone(file: Path, was: str) -> StartupError:
    return StartupError(f"{file} is not there, and {was}: put it back, or choose another --output")


def _make_durable(path: Path) -> None:
    """The bytes of a file, or the names of a folder's files."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
