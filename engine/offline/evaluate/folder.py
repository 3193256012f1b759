"""The folder of one evaluation.

settings.json says what it was begun with, evaluations/ has a line a row (see
`lanes/evaluation/results.py`), samples.jsonl a few trajectories as text, engine.jsonl the log;
owner tells its tool sessions from those of others. results.json and page.html are made of those, at
the end and whenever they are asked for again.

Invariants
- settings.json is there before the first row, whole, and never changes. A start with others is
  refused: its rows would be of another measurement.
- One process at a time has the folder.
- Nothing is thrown away: --fresh renames what is there.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from engine.errors import StartupError
from engine.offline.resume_settings import what_differs

FORMAT = 1
LOG = "engine.jsonl"
RESULTS = "results.json"
PAGE = "page.html"
_SETTINGS = "settings.json"
_LOCK = "lock"
_OWNER = "owner"
_UNFINISHED = ".unfinished"
_OWN = frozenset((LOG, RESULTS, PAGE, _SETTINGS, _LOCK, _OWNER, "evaluations", "samples.jsonl"))


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedOf:
    """A suite of the folder. n: rows. questions: as many, but for several samples of each."""

    name: str
    n: int
    questions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """What a folder was begun with.

    name: of the recipe's run. weights: for people. version: as rows have it. settings: what has to
    be the same, by names for a sentence.
    """

    name: str
    weights: str
    version: str
    samples: int
    suites: Sequence[AskedOf]
    settings: Mapping[str, str]

    @property
    def digest(self) -> str:
        """What the rows of these settings are told by."""
        data = orjson.dumps(dict(self.settings), option=orjson.OPT_SORT_KEYS)
        return hashlib.sha256(data).hexdigest()[:12]


class EvaluationFolder:
    """`claim` it, then `begin`; `close` in every case."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: BinaryIO | None = None

    def claim(self) -> None:
        """Nobody else has it from now on. StartupError where another process has it, or where it
        is something else's folder; OSError where it cannot be made."""
        while not self._take_lock():
            pass

    def begin(self, begun: Begun, *, fresh: bool = False) -> Path | None:
        """fresh: what is there is renamed, now that nothing keeps the new one from its beginning;
        its new name. StartupError where the folder was begun with other settings."""
        aside = self._set_aside() if fresh and (self.path / _SETTINGS).exists() else None
        if not (self.path / _SETTINGS).exists():
            data = {"format": FORMAT, **asdict(begun), "settings": dict(begun.settings)}
            write_whole(self.path / _SETTINGS, orjson.dumps(data, option=orjson.OPT_INDENT_2))
        elif differs := what_differs(read_begun(self.path).settings, begun.settings):
            raise StartupError(
                f"{self.path} {differs}: go on with what it was begun with, choose another "
                "--output, or set it aside with --fresh"
            )
        return aside

    def owner(self) -> str:
        """Of tool sessions: drawn once, the same in every life of this evaluation, so that sessions
        of a killed one are closed. A path would not do: two hosts may have the same one."""
        file = self.path / _OWNER
        if not (found := _owner_in(file)):
            found = uuid.uuid4().hex
            write_whole(file, found.encode())
        return found

    def _set_aside(self) -> Path:
        aside = next(
            name
            for number in count(1)
            if not (name := self.path.with_name(f"{self.path.name}.before-{number}")).exists()
        )
        self.path.rename(aside)
        self.close()
        self.claim()
        return aside

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _take_lock(self) -> bool:
        """False where the folder was set aside meanwhile: the lock is that of another folder."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, FileNotFoundError, NotADirectoryError) as error:
            raise StartupError(
                f"{self.path} cannot be a folder ({error.strerror}): choose another --output"
            ) from error
        there = (one.name for one in self.path.iterdir())
        others = sorted(one for one in there if not _is_own(one))
        if others and not (self.path / _SETTINGS).exists():
            raise StartupError(
                f"{self.path} holds {others[0]!r} and no evaluation: choose another --output"
            )
        lock = (self.path / _LOCK).open("ab")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.close()
            raise StartupError(
                f"{self.path} is written by another `engine eval`: wait for it, or choose another "
                "--output"
            ) from error
        if not _is_there(lock, self.path / _LOCK):
            lock.close()
            return False
        self._lock = lock
        return True


def _is_there(file: BinaryIO, path: Path) -> bool:
    """Whether the open file is the one that has this path now."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _owner_in(file: Path) -> str:
    """ "" where there is none, or none that this wrote."""
    try:
        found = file.read_bytes()[:64]
    except FileNotFoundError:
        return ""
    return found.decode() if re.fullmatch(rb"[0-9a-f]{32}", found) else ""


def _is_own(name: str) -> bool:
    """Whether an evaluation, or what a kill left of it, has files of that name."""
    if name.endswith(_UNFINISHED):
        whole, _, number = name.removesuffix(_UNFINISHED).rpartition(".")
        return number.isdecimal() and whole in _OWN
    return name in _OWN


def read_begun(folder: Path) -> Begun:
    """StartupError where the folder is no evaluation's."""
    file = folder / _SETTINGS
    try:
        data: Any = orjson.loads(file.read_bytes())
        if data["format"] != FORMAT:
            raise StartupError(
                f"{file} has format {data['format']!r}, this version reads {FORMAT}: read it with "
                "the version that wrote it"
            )
        return Begun(
            name=str(data["name"]),
            weights=str(data["weights"]),
            version=str(data["version"]),
            samples=max(1, int(data["samples"])),
            suites=[
                AskedOf(name=str(one["name"]), n=int(one["n"]), questions=int(one["questions"]))
                for one in data["suites"]
            ],
            settings={str(name): str(value) for name, value in data["settings"].items()},
        )
    except (FileNotFoundError, NotADirectoryError) as error:
        raise StartupError(
            f"{folder} holds no evaluation: name the --output of `engine eval`"
        ) from error
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise StartupError(f"{file} is not what `engine eval` wrote: {error!r}") from error


def write_whole(file: Path, data: bytes) -> None:
    """The file is there whole, or as it was before."""
    # With the process's number: `show` may write beside a run that is ending.
    unfinished = file.with_name(f"{file.name}.{os.getpid()}{_UNFINISHED}")
    try:
        with unfinished.open("wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        unfinished.replace(file)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise
