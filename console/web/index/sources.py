"""Where a run's trajectories lie, each place read from where the last reading ended.

| source | file | what it holds |
|---|---|---|
| journal | journal.sqlite | every token of training groups, until the engine forgets them |
| rows | evaluations/SUITE@VERSION.jsonl | figures of every evaluated question |
| samples | samples.jsonl | the text of some of these |
| recordings | *.trajectories | every token of what `engine sample` or `engine render` wrote here |

Invariants
- Nothing is changed, and no lock is held: an engine may write meanwhile, and may have died.
- A record that is broken costs itself, a file that is broken costs what follows the break.
- A reading is bounded: MOST_BYTES of records, however large the file.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from google.protobuf.message import DecodeError
from google.protobuf.proto import parse_length_prefixed

from console.record.files import SAMPLES
from console.record.tail import Tail
from console.web.index import entries
from console.web.index.types import Batch, Entry, Place
from toolwright.common.v1 import trajectory_pb2 as pb
from toolwright.reading.files import open_regular
from toolwright.reading.sqlite_files import check_tables, open_read_only, typed_rows
from toolwright.trajectory_files import SUFFIX

JOURNAL = "journal.sqlite"
JOURNAL_FORMAT = 2
"""The engine's own number for these tables."""
ROWS_FOLDER = "evaluations"
MOST_BYTES = 4 << 20
MOST_FILES = 5000
"""Maximum number of files of each kind: beyond, the run has another use for its folder."""

STRANGE = (ValueError, TypeError, LookupError, ArithmeticError, RecursionError)
"""What a record raises that no program of ours wrote: a number of 400 digits, say."""
_TABLES = """
CREATE TABLE facts (name TEXT, value TEXT);
CREATE TABLE groups (sequence INTEGER, dropped INTEGER);
CREATE TABLE members (sequence INTEGER, number INTEGER, trajectory BLOB);
CREATE TABLE blobs (sha256 TEXT, data BLOB);
"""
"""Those that are read here, of the engine's."""

DecoderOf = Callable[[str], entries.Decode]
"""A decoder for the tokenizer of this hash."""


class Source(Protocol):
    """One place. `identity` tells one file from a later one of the same name; "" = not there."""

    name: str

    def identity(self) -> str: ...

    def read(self, place: int) -> Batch:
        """What follows `place`, which is 0 at first."""
        ...


def sources_of(folder: Path, decoder: DecoderOf) -> list[Source]:
    """Those that a run folder has now."""
    found: list[Source] = [Journal(folder, decoder)]
    found += [Lines(file, f"{ROWS_FOLDER}/{file.name}", entries.of_row) for file in _rows(folder)]
    found.append(Lines(folder / SAMPLES, SAMPLES, entries.of_sample))
    found += [Recording(file, decoder) for file in _files(folder, f"*{SUFFIX}")]
    return found


class Journal:
    """Groups that are complete, in the order in which they came to be so."""

    name = JOURNAL

    def __init__(self, folder: Path, decoder: DecoderOf) -> None:
        self._file = folder / JOURNAL
        self._decoder = decoder

    def identity(self) -> str:
        if not self._file.exists():
            return ""
        try:
            with open_journal(self._file) as db:
                (owner,) = db.execute("SELECT value FROM facts WHERE name = 'owner'").fetchone()
                return f"journal of {owner}"
        except (sqlite3.Error, TypeError):
            return "journal without an owner"  # a new one, or a broken one, as `read` will say

    def read(self, place: int) -> Batch:
        try:
            with open_journal(self._file) as db:
                return self._groups(db, place)
        except sqlite3.Error as error:
            return Batch(place=place, fault=f"{self._file} cannot be read: {error}")

    def _groups(self, db: sqlite3.Connection, place: int) -> Batch:
        (last,) = db.execute("SELECT coalesce(max(sequence), 0) FROM groups").fetchone()
        if last < place:
            return Batch(place=0, anew=True)
        found: list[Entry] = []
        size = broken = 0
        found_rows = db.execute(
            "SELECT sequence, number, trajectory FROM members WHERE sequence > ?"
            " ORDER BY sequence, number",
            (place,),
        )
        at = place
        for sequence, number, data in typed_rows(found_rows, int, int, bytes):
            if sequence != at and size > MOST_BYTES:
                return Batch(place=at, entries=tuple(found), broken=broken, more=True)
            at, size = sequence, size + len(data)
            try:
                message = pb.Trajectory.FromString(data)
                entry = entries.of_trajectory(
                    message,
                    Place(source=self.name, at=sequence, part=number),
                    kind="training",
                    suite=entries.TRAINING,
                    decode=self._decoder(message.tokenizer_hash),
                )
            except (DecodeError, *STRANGE):
                broken += 1
                continue
            found.append(entry)
        return Batch(place=at, entries=tuple(found), broken=broken)


class LinesFile:
    """A JSONL file that grows. A subclass makes a batch of its new lines."""

    def __init__(self, file: Path, name: str) -> None:
        self.name = name
        self._file = file

    def identity(self) -> str:
        return inode(self._file)

    def read(self, place: int) -> Batch:
        tail = Tail(self._file, place)
        piece = tail.read_piece()
        if tail.place < place or size_of(self._file) < place:
            return Batch(place=0, anew=True)
        return replace(self._batch(piece or ()), place=tail.place, more=tail.place > place)

    def _batch(self, lines: Iterable[tuple[int, Mapping[str, Any] | None]]) -> Batch:
        raise NotImplementedError


class Lines(LinesFile):
    """A JSONL file. `parse` makes an entry of an object, or None."""

    def __init__(
        self, file: Path, name: str, parse: Callable[[Mapping[str, Any], Place], Entry | None]
    ) -> None:
        super().__init__(file, name)
        self._parse = parse

    def _batch(self, lines: Iterable[tuple[int, Mapping[str, Any] | None]]) -> Batch:
        found = [self._entry(row, at) if row is not None else None for at, row in lines]
        good = tuple(entry for entry in found if entry is not None)
        return Batch(place=0, entries=good, broken=len(found) - len(good))

    def _entry(self, row: Mapping[str, Any], at: int) -> Entry | None:
        try:
            return self._parse(row, Place(source=self.name, at=at))
        except STRANGE:
            return None


class Recording:
    """A file of length-prefixed trajectories, which is there whole or not at all."""

    def __init__(self, file: Path, decoder: DecoderOf) -> None:
        self.name = file.name
        self._file = file
        self._decoder = decoder

    def identity(self) -> str:
        return inode(self._file)

    def read(self, place: int) -> Batch:
        found: list[Entry] = []
        try:
            with open_regular(self._file) as file:
                if file.seek(0, 2) < place:
                    return Batch(place=0, anew=True)
                file.seek(place)
                at = place
                while at - place <= MOST_BYTES:
                    if (message := read_message(file)) is None:
                        return Batch(place=at, entries=tuple(found))
                    found.append(
                        entries.of_trajectory(
                            message,
                            Place(source=self.name, at=at),
                            kind="file",
                            suite=self.name.removesuffix(SUFFIX),
                            decode=self._decoder(message.tokenizer_hash),
                        )
                    )
                    at = file.tell()
        except (OSError, *STRANGE) as error:
            fault = f"{self._file} is no trajectories file or is cut behind byte {at}: {error}"
            return Batch(place=at, entries=tuple(found), fault=fault)
        return Batch(place=at, entries=tuple(found), more=True)


def open_journal(file: Path) -> closing[sqlite3.Connection]:
    """A connection for a `with`, which closes it. Raises sqlite3.Error."""
    return closing(open_read_only(file, _check_journal))


def _check_journal(db: sqlite3.Connection) -> None:
    """Raises sqlite3.Error for the tables of another engine."""
    (found,) = db.execute("PRAGMA user_version").fetchone()
    if found != JOURNAL_FORMAT:
        raise sqlite3.DatabaseError(
            f"it has format {found}, this program reads {JOURNAL_FORMAT}: take the version of "
            "Toolwright that made the run"
        )
    check_tables(db, _TABLES)


def read_message(file: BinaryIO) -> pb.Trajectory | None:
    """The next record of a file; None at its end. Raises ValueError for a cut or another one."""
    try:
        message: pb.Trajectory | None = parse_length_prefixed(pb.Trajectory, file)  # type: ignore[arg-type]
    except Exception as error:  # protobuf raises several kinds, and plain ones
        raise ValueError(str(error)) from error
    return message


def _rows(folder: Path) -> list[Path]:
    return _files(folder / ROWS_FOLDER, "*.jsonl")


def _files(folder: Path, pattern: str) -> list[Path]:
    try:
        return sorted(file for file in folder.glob(pattern) if file.is_file())[:MOST_FILES]
    except OSError:
        return []


def inode(file: Path) -> str:
    """An identity of the file; "" where it is not there."""
    try:
        return f"file {file.stat().st_ino}"
    except OSError:
        return ""


def size_of(file: Path) -> int:
    """Bytes; 0 where it is not there."""
    try:
        return file.stat().st_size
    except OSError:
        return 0
