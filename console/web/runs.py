"""The runs that are shown, by the names that links have."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from console.errors import RecordBroken
from console.record.run import MOST_RUNS, SIGNS, check_count, check_run, distinct
from console.web.index.index import Index
from console.web.index.schema import index_file
from console.web.index.sources import JOURNAL
from console.web.measures.reading import Figures
from console.web.measures.split import Split
from console.web.telling.tokens import Spellings

DEEPEST = 3
"""Folders below the one that was named in which runs are looked for."""
MOST_ENTRIES = 10_000


@dataclass(slots=True, kw_only=True)
class Run:
    """One run. whole: its index has all that the run had when it was last looked at.

    fault: why the index cannot be written; what it holds is shown all the same. measured: the state
    of the figures' files then.
    """

    name: str
    folder: Path
    index: Index
    spellings: Spellings
    figures: Figures
    split: Split
    whole: bool = False
    fault: str = ""
    remarks: tuple[str, ...] = field(default=())
    measured: str = ""

    def refresh(self) -> bool:
        """Brings the index on by a batch; returns whether a page has to change."""
        before = self._seen()
        self.measured = self.figures.state
        self.whole = not self.index.refresh()
        self.remarks = tuple(self.index.remarks)
        return before != self._seen()

    def _seen(self) -> tuple[object, ...]:
        return (self.index.generation, self.whole, self.remarks, self.measured)


def find_runs(named: Sequence[Path]) -> list[Path]:
    """The run folders that are named, and those below a folder that is not a run's. Raises
    RecordBroken without any, and for more than MOST_RUNS."""
    found: dict[Path, None] = {}
    for folder in named:
        below = [folder] if _is_run(folder) else _runs_below(folder)
        if not below:
            check_run(folder)  # says what is wrong with it
        found |= dict.fromkeys(one.resolve() for one in below)
    check_count(list(found))
    return list(found)


def open_runs(folders: Sequence[Path], cache: Path) -> list[Run]:
    """Each with its index below `cache`. sqlite3.Error where that cannot be written."""
    return [
        _opened(name, folder, cache)
        for name, folder in zip(distinct(folders), folders, strict=True)
    ]


class NewRuns:
    """Runs that begin below the named folders while others are shown."""

    def __init__(self, named: Sequence[Path], cache: Path) -> None:
        self._named = [folder for folder in named if not _is_run(folder)]
        self._cache = cache

    def find(self, shown: Iterable[Run]) -> list[Run]:
        """Those that are not shown, opened. A name that is shown stays what it is. RecordBroken,
        OSError and sqlite3.Error as above."""
        if not self._named:
            return []
        there = {run.folder: run.name for run in shown}
        found = []
        for folder in find_runs(self._named):
            if folder in there or len(there) >= MOST_RUNS:
                continue
            lengths = range(1, len(folder.parts) + 1)
            names = ("/".join(folder.parts[-length:]) for length in lengths)
            there[folder] = next(name for name in names if name not in there.values())
            found.append(_opened(there[folder], folder, self._cache))
        return found


def _opened(name: str, folder: Path, cache: Path) -> Run:
    spellings = Spellings(folder)
    index = Index(folder, index_file(folder, cache), spellings.decoder)
    return Run(
        name=name,
        folder=folder,
        index=index,
        spellings=spellings,
        figures=Figures(folder, name),
        split=Split(index),
    )


def _is_run(folder: Path) -> bool:
    try:
        return any((folder / sign).is_file() for sign in (*SIGNS, JOURNAL))
    except OSError:
        return False


def _runs_below(folder: Path) -> list[Path]:
    found, looked = [], 0
    level = [folder]
    for _ in range(DEEPEST):
        below = []
        for one in level:
            try:
                entries = sorted(entry.path for entry in os.scandir(one) if entry.is_dir())
            except OSError:
                continue
            looked += len(entries)
            if looked > MOST_ENTRIES:
                raise RecordBroken(
                    f"{folder} holds too many folders to look for runs in: name the runs"
                )
            below += [Path(path) for path in entries]
        found += [one for one in below if _is_run(one)]
        level = [one for one in below if not _is_run(one)]
    return found
