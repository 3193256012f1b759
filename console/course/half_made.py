"""Marks of unfinished makers: a file for each maker, which exists while the maker runs.

Invariants
- A maker with a mark runs again: its output is not complete.
- Incomplete output is moved to PATH.unfinished, PATH.unfinished-2, and so on, because a command may
  refuse an existing path, and because the user may have put it there. Nothing is deleted or written
  over. `learner sft` resumes by itself.
- A failed maker leaves no mark, and its output is moved at once. Later files are the user's.
- Paths without a mark are the user's and stay.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from console.asked.plan import Maker
from console.errors import ConsoleError
from console.record.course import FOLDER

MAKING = f"{FOLDER}/making"
UNFINISHED = ".unfinished"


def there(run: Path, makers: Iterable[Maker]) -> Callable[[Path], bool]:
    """Whether a path is there and whole, as far as this run knows."""
    half = {maker.makes for maker in makers if _marks(run, maker)}
    return lambda path: path.exists() and path not in half


@contextmanager
def making(run: Path, maker: Maker) -> Iterator[None]:
    """Around a maker's run; what it leaves counts once the block ends without error. OSError."""
    mark = _mark(run, maker)
    if _marks(run, maker):
        _aside(maker)
    else:
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.write_text(str(maker.makes), encoding="utf-8")
    maker.makes.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except ConsoleError:
        # It has come to its end. One that is only told to end may still write: its mark stays.
        _aside(maker)
        if not maker.makes.exists():
            mark.unlink()
        raise
    mark.unlink()


def _mark(run: Path, maker: Maker) -> Path:
    return run / MAKING / f"{maker.kind}-{maker.name}"


def _marks(run: Path, maker: Maker) -> bool:
    """Whether a start was making this very path."""
    mark = _mark(run, maker)
    return mark.is_file() and mark.read_text(errors="replace", encoding="utf-8") == str(maker.makes)


def _aside(maker: Maker) -> None:
    """Moves incomplete output to a free name."""
    if maker.kind != "sft" and maker.makes.exists():
        set_aside(maker.makes, UNFINISHED)


def set_aside(path: Path, suffix: str) -> Path:
    """Moves a file or folder to the first free name of PATH.suffix, PATH.suffix-2, ...; returns it.
    Raises OSError."""
    name = path.name + suffix
    number = 1
    while os.path.lexists(aside := path.with_name(name)):
        number += 1
        name = f"{path.name}{suffix}-{number}"
    path.rename(aside)
    return aside
