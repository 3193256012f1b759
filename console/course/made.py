"""What a run makes first: a note for each maker, with the settings that it made its output from.

Invariants
- A note without settings is of a maker that did not end: its output is not complete, it runs again.
  A note that cannot be parsed counts as one without settings.
- Incomplete output is moved to PATH.unfinished, because a command may refuse an existing path, and
  because the user may have put it there. `learner sft` resumes by itself. A failed maker leaves no
  note, and its output is moved at once.
- Output from other settings is used, with a warning. `--remake` makes it again, with all that was
  made of it; the old output is moved to PATH.old.
- Nothing is deleted or written over. Paths without a note are the user's and stay.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from console.asked.plan import Maker
from console.asked.settings import made_from
from console.asked.setup import Setup
from console.atomic import put
from console.errors import ConsoleError, NothingStarted
from console.record.changes import differences, listed
from console.record.course import FOLDER

MADE = f"{FOLDER}/made"
LARGEST = 1 << 20
OLD, UNFINISHED = ".old", ".unfinished"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outdated:
    """A thing that is there and was made from other settings. differs: a sentence each."""

    maker: Maker
    differs: tuple[str, ...]

    @property
    def sentence(self) -> str:
        return (
            f"{self.maker.makes} was made by {self.maker.where} with other settings "
            f"({listed(self.differs)}) and is used as it is: `toolwright run --remake` makes it "
            "again"
        )


def there(run: Path, makers: Iterable[Maker]) -> Callable[[Path], bool]:
    """Whether a path is there and whole, as far as this run knows."""
    half = {maker.makes for maker in makers if _is_half(run, maker)}
    return lambda path: path.exists() and path not in half


@contextmanager
def making(run: Path, maker: Maker, settings: Mapping[str, str]) -> Iterator[None]:
    """Around a maker's run; what it leaves counts once the block ends without error. OSError."""
    if _is_half(run, maker):
        _aside(maker)
    _note(run, maker, None)
    maker.makes.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except ConsoleError:
        # It has come to its end. One that is only told to end may still write: its note stays.
        _aside(maker)
        if not maker.makes.exists():
            _file(run, maker).unlink()
        raise
    _note(run, maker, settings)


def outdated(setup: Setup, makers: Sequence[Maker]) -> tuple[Outdated, ...]:
    """In the order of the makers."""
    found = []
    for maker in makers:
        before = _noted(setup.run, maker)
        if not maker.makes.exists() or not isinstance(before, Mapping):
            continue
        before = {str(name): str(value) for name, value in before.items()}
        if differs := differences(before, made_from(setup, maker)):
            found.append(Outdated(maker=maker, differs=tuple(differs)))
    return tuple(found)


def remake(setup: Setup, makers: Sequence[Maker], steps: int) -> list[str]:
    """Moves what is outdated aside, with what was made of it; a sentence for each. steps: those
    that the run has made. Raises NothingStarted if training has begun, and OSError."""
    old = [one.maker for one in outdated(setup, makers)]
    if old and steps:
        raise NothingStarted(
            f"--remake: {setup.run} has made {steps} steps that began with "
            f"{', '.join(str(maker.makes) for maker in old)}: --folder FOLDER begins a new run"
        )
    gone = {maker.makes for maker in old}
    while more := [
        maker
        for maker in makers
        if maker.makes not in gone and any(need.path in gone for need in maker.needs)
    ]:
        gone |= {maker.makes for maker in more}
    said = []
    for maker in makers:
        if maker.makes not in gone:
            continue
        _file(setup.run, maker).unlink(missing_ok=True)
        paths = [maker.makes]
        if maker.kind == "sft":
            paths.append(setup.run / "sft")  # its checkpoints belong to the old settings
        said += [
            f"{path} is made again: the old one is {_set_aside(path, OLD)}"
            for path in paths
            if path.exists()
        ]
    return said


def _file(run: Path, maker: Maker) -> Path:
    return run / MADE / f"{maker.kind}-{maker.name}.json"


def _note(run: Path, maker: Maker, settings: Mapping[str, str] | None) -> None:
    file = _file(run, maker)
    file.parent.mkdir(parents=True, exist_ok=True)
    note = {"makes": str(maker.makes), "settings": settings}
    put(file, json.dumps(note, indent=1))


def _noted(run: Path, maker: Maker) -> object:
    """The settings of the note of this very path. "" without a note, and for another path's; None
    while the path is made, and for a note that cannot be parsed."""
    try:
        with _file(run, maker).open("rb") as file:
            found = json.loads(file.read(LARGEST))
        return found["settings"] if found["makes"] == str(maker.makes) else ""
    except OSError:
        return ""
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _is_half(run: Path, maker: Maker) -> bool:
    return _noted(run, maker) is None


def _aside(maker: Maker) -> None:
    """Moves incomplete output to a free name."""
    if maker.kind != "sft" and maker.makes.exists():
        _set_aside(maker.makes, UNFINISHED)


def _set_aside(path: Path, suffix: str) -> Path:
    """Moves a file or folder to the first free name of PATH.suffix, PATH.suffix-2, ...; returns it.
    Raises OSError."""
    name = path.name + suffix
    number = 1
    while os.path.lexists(aside := path.with_name(name)):
        number += 1
        name = f"{path.name}{suffix}-{number}"
    path.rename(aside)
    return aside
