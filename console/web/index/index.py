"""The index of one run, brought up to date a batch at a time.

Invariants
- A batch and the place that it leads to are written in one transaction: after a kill the
  batch is read again, and no row is there twice.
- Only rows are added. Where a file was begun anew, which none of a living run is, the whole index
  is made again.
- No file of the run stops it. What cannot be read is a remark.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from console.web.index.label_store import LabelStore
from console.web.index.marks import marks_of
from console.web.index.schema import is_spoilt, open_index, remove_index
from console.web.index.sources import DecoderOf, Source, sources_of
from console.web.index.spans import packed
from console.web.index.types import Batch, Entry

_COLUMNS = (
    "name, family, suite, kind, step, reward, stop, status, masked, turns, calls, failed, tokens,"
    " seconds, task, question, answer, tools, source, at, part, sample"
)
TOOL_SEPARATOR = "\n"
"""Between the names of a row's tools: no name of a tool holds it."""


class Index:
    """Written by one thread at a time; `file` has any number of readers (`queries.py`)."""

    def __init__(self, folder: Path, file: Path, decoder: DecoderOf) -> None:
        """sqlite3.Error where no index can be kept there."""
        self.folder = folder
        self.file = file
        self._decoder = decoder
        self._db = open_index(file)
        self._labels = LabelStore(self._db)
        self._faults: dict[str, str] = {}
        self.generation = 0
        """Grows whenever rows came."""

    def close(self) -> None:
        self._db.close()

    def refresh(self) -> bool:
        """Takes in one batch of each source that has something new; returns whether there may be
        more. sqlite3.Error where the index itself cannot be written."""
        try:
            return self._refresh([*sources_of(self.folder, self._decoder), *marks_of(self.folder)])
        except sqlite3.DatabaseError as error:
            if not is_spoilt(error):
                raise
            self._again()
            return True

    @property
    def remarks(self) -> list[str]:
        """What could not be read, a sentence each."""
        broken = self._db.execute("SELECT name, broken FROM sources WHERE broken ORDER BY name")
        counted = [
            f"{self.folder / name}: {count} {'record is' if count == 1 else 'records are'} broken "
            "and left out"
            for name, count in broken
        ]
        return [*self._faults.values(), *counted]

    def _refresh(self, sources: Sequence[Source]) -> bool:
        more = False
        known = {
            name: (identity, place)
            for name, identity, place in self._db.execute(
                "SELECT name, identity, place FROM sources"
            )
        }
        for source in sources:
            identity = source.identity()
            if not identity:
                continue
            was, place = known.get(source.name, (identity, 0))
            batch = source.read(place) if was == identity else Batch(place=0, anew=True)
            if batch.anew:
                self._again()
                return True
            if batch.fault:
                self._faults[source.name] = batch.fault
            else:
                self._faults.pop(source.name, None)
            if batch.place != place or batch.entries or source.name not in known:
                self._take_in(source.name, identity, batch)
            more = more or batch.more
        return more

    def _take_in(self, source: str, identity: str, batch: Batch) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            for entry in batch.entries:
                self._add(entry)
            self._db.executemany(
                "INSERT INTO marks (kind, step, at, name, seconds) VALUES (?, ?, ?, ?, ?)",
                [(m.kind, m.step, m.at, m.name, json.dumps(m.seconds)) for m in batch.marks],
            )
            self._db.execute(
                "INSERT INTO sources VALUES (:name, :identity, :place, :broken)"
                " ON CONFLICT (name) DO UPDATE SET place = :place, broken = broken + :broken",
                {
                    "name": source,
                    "identity": identity,
                    "place": batch.place,
                    "broken": batch.broken,
                },
            )
            self._db.execute("COMMIT")
        except BaseException:
            self._db.execute("ROLLBACK")
            self._labels.forget()
            raise
        if batch.entries or batch.marks:
            self.generation += 1

    def _add(self, entry: Entry) -> None:
        if entry.kind != "evaluation":
            self._insert(entry, sample=None)
            return
        there = self._db.execute(
            "SELECT id, source, status, sample FROM rows WHERE name = ?", (entry.name,)
        ).fetchone()
        if there is None:
            self._insert(entry, sample=entry.place.at if entry.texts else None)
        elif entry.texts is not None:
            self._say(entry, *there)
        elif there[2] in ("errored", "bad row") or there[3] is not None:
            self._measure(entry, there[0])

    def _insert(self, entry: Entry, sample: int | None) -> None:
        values = (
            entry.name, entry.group, entry.suite, entry.kind, entry.step, entry.reward, entry.stop,
            entry.status, entry.masked, entry.turns, entry.calls, entry.failed, entry.tokens,
            entry.seconds, entry.task, entry.question, entry.answer,
            TOOL_SEPARATOR.join(entry.tools), entry.place.source, entry.place.at, entry.place.part,
            sample,
        )  # fmt: skip
        cursor = self._db.execute(
            f"INSERT INTO rows ({_COLUMNS}) VALUES ({', '.join('?' * len(values))})"
            " ON CONFLICT (name) DO NOTHING",
            values,
        )
        if not cursor.rowcount:
            return  # a record that is there twice
        number = cursor.lastrowid
        if entry.tools:
            rows = [(tool, number) for tool in entry.tools]
            self._db.executemany("INSERT OR IGNORE INTO used VALUES (?, ?)", rows)
        if (times := entry.times) is not None:
            self._db.execute(
                "INSERT INTO times VALUES (?, ?, ?, ?, ?)",
                (number, entry.step, times.began, times.began + times.length, packed(times.spans)),
            )
        self._labels.add(number, entry)
        self._search(entry, number)

    def _say(self, entry: Entry, number: int, _source: str, _status: str, sample: object) -> None:
        """The text of an evaluated question whose figures came first."""
        if sample is not None:
            return
        self._db.execute(
            "UPDATE rows SET sample = ?, turns = ?, question = ?, answer = ? WHERE id = ?",
            (entry.place.at, entry.turns, entry.question, entry.answer, number),
        )
        self._search(entry, number)

    def _measure(self, entry: Entry, number: int) -> None:
        """The figures of a question whose text came first, or that was asked again."""
        self._db.execute(
            "UPDATE rows SET reward = ?, stop = ?, status = ?, masked = ?, calls = ?, tokens = ?,"
            " seconds = ?, source = ?, at = ?, part = ? WHERE id = ?",
            (
                entry.reward, entry.stop, entry.status, entry.masked, entry.calls, entry.tokens,
                entry.seconds, entry.place.source, entry.place.at, entry.place.part, number,
            ),
        )  # fmt: skip
        self._labels.add(number, entry)

    def _search(self, entry: Entry, number: int | None) -> None:
        texts = entry.texts
        if texts is not None:
            self._db.execute(
                "INSERT INTO texts (rowid, question, wrote, read) VALUES (?, ?, ?, ?)",
                (number, texts.question, texts.wrote, texts.read),
            )

    def _again(self) -> None:
        self._db.close()
        remove_index(self.file)
        self._db = open_index(self.file)
        self._labels = LabelStore(self._db)
        self._faults.clear()
        self.generation += 1
