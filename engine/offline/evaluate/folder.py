"""The folder of one evaluation.

settings.json holds the settings that it began with. evaluations/ has one line for each row (see
`engine.serving.evaluation.results`), samples.jsonl a few trajectories as text, engine.jsonl the
log. `owner` names its tool sessions. results.json and page.html are made from these files, at the
end and by `engine eval show`.

Invariants
- settings.json is written whole before the first row and never changes. A start with other settings
  is refused: its rows would belong to another measurement.
- One process at a time uses the folder.
- No file is deleted: --fresh renames the folder.
"""

from __future__ import annotations

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
from engine.offline.output_files import UNFINISHED, take_lock, write_whole
from engine.offline.resume_settings import check_same_settings

FORMAT = 1
LOG = "engine.jsonl"
RESULTS = "results.json"
PAGE = "page.html"
_SETTINGS = "settings.json"
_LOCK = "lock"
_OWNER = "owner"
_OWN = frozenset((LOG, RESULTS, PAGE, _SETTINGS, _LOCK, _OWNER, "evaluations", "samples.jsonl"))


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteSize:
    """How large a suite of the folder is."""

    name: str
    n: int
    """Rows: `samples` of each question."""
    questions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationSettings:
    """The content of settings.json."""

    name: str
    """Name of the recipe's run."""
    weights: str
    """The weights, as users read them."""
    version: str
    """The weight version, as rows have it."""
    samples: int
    """Rows of each question."""
    suites: Sequence[SuiteSize]
    settings: Mapping[str, str]
    """What every later start must repeat, under the names that an error message shows."""

    @property
    def digest(self) -> str:
        """A hash of the settings, which every row carries."""
        data = orjson.dumps(dict(self.settings), option=orjson.OPT_SORT_KEYS)
        return hashlib.sha256(data).hexdigest()[:12]


class EvaluationFolder:
    """Call `claim`, then `begin`; `close` in every case."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: BinaryIO | None = None

    def claim(self) -> None:
        """Takes the folder for this process.

        Raises StartupError if another process uses it or it holds something else, OSError if it
        cannot be created.
        """
        while not self._take_lock():
            pass

    def begin(self, settings: EvaluationSettings, *, fresh: bool = False) -> Path | None:
        """Writes the settings of a new evaluation, or checks those of an earlier start.

        fresh: renames an existing evaluation first; its new path is returned. Raises StartupError
        if the folder was begun with other settings.
        """
        aside = self._set_aside() if fresh and (self.path / _SETTINGS).exists() else None
        if not (self.path / _SETTINGS).exists():
            data = {"format": FORMAT, **asdict(settings), "settings": dict(settings.settings)}
            write_whole(self.path / _SETTINGS, orjson.dumps(data, option=orjson.OPT_INDENT_2))
        else:
            advice = "use the same settings, choose another --output, or set it aside with --fresh"
            before = read_settings(self.path).settings
            check_same_settings(self.path, before, settings.settings, advice)
        return aside

    def owner(self) -> str:
        """Name of the evaluation's tool sessions, drawn once and kept across restarts.

        So the sessions of a killed process are closed. A path would not do: two hosts may share it.
        """
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
        """False if the folder was renamed meanwhile: the lock then belongs to another folder."""
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
        lock = take_lock(self.path / _LOCK, self.path, "engine eval")
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
    """The name in the file; "" if the file is missing or holds anything else."""
    try:
        found = file.read_bytes()[:64]
    except FileNotFoundError:
        return ""
    return found.decode() if re.fullmatch(rb"[0-9a-f]{32}", found) else ""


def _is_own(name: str) -> bool:
    """Whether an evaluation has files of that name, those of a killed process included."""
    if name.endswith(UNFINISHED):
        whole, _, number = name.removesuffix(UNFINISHED).rpartition(".")
        return number.isdecimal() and whole in _OWN
    return name in _OWN


def read_settings(folder: Path) -> EvaluationSettings:
    """The settings of an evaluation's folder. Raises StartupError for any other folder."""
    file = folder / _SETTINGS
    try:
        data: Any = orjson.loads(file.read_bytes())
        if data["format"] != FORMAT:
            raise StartupError(
                f"{file} has format {data['format']!r}, this version reads {FORMAT}: read it with "
                "the version that wrote it"
            )
        return EvaluationSettings(
            name=str(data["name"]),
            weights=str(data["weights"]),
            version=str(data["version"]),
            samples=max(1, int(data["samples"])),
            suites=[
                SuiteSize(name=str(one["name"]), n=int(one["n"]), questions=int(one["questions"]))
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
