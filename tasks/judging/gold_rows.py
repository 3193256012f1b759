"""The right rows of a question over a database: found once, and compared with by a reward.

A gold query belongs to a published set or to a world of ours. It runs here, while a file of
questions is written or a world is set up, and never beside a policy: the reward compares rows with
rows, and has no database. What a policy wrote runs in the `sql` tool's sandbox alone, which gives
the rows of a solution as JSON (`sql.solution_json`).
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tasks.judging.tables import asks_for_order

SECONDS = 5.0
"""For one gold query, as for one of the policy's."""
MOST_CHARACTERS = 32 * 1024
"""Longest JSON of the right rows. The tool gives 64 KiB of a solution's: the same rows can be spelt
a little longer, never twice as long, so what it has to cut is another table."""
_FAILS = "a gold query that fails"
_LATE = "a gold query that takes too long"
_STEPS = 10_000
"""Steps of SQLite's machine between two looks at the clock."""
_READS = (
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_RECURSIVE,
)


class NoGold(Exception):
    """The query gives no rows to compare with: its question cannot be asked. The text is one of
    few, for counting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gold:
    """The right query, its rows, and whether their order counts."""

    sql: str
    rows: Sequence[Sequence[Any]]
    ordered: bool

    def answer(self) -> str:
        """As the `answer` of a task."""
        found = {"sql": self.sql, "ordered": self.ordered, "rows": self.rows}
        return json.dumps(found, ensure_ascii=False)


def read_gold(answers: Sequence[str]) -> Gold:
    """What `Gold.answer` wrote. Raises ValueError for any other answer of a task."""
    try:
        (answer,) = answers
        found = json.loads(answer)
        return Gold(sql=found["sql"], rows=found["rows"], ordered=found["ordered"])
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(
            "the task's answer holds no right rows: it is what Gold.answer writes"
        ) from error


def read_rows(text: str) -> Sequence[Sequence[Any]] | None:
    """The rows in what the tool gave for a solution; None where it gave none."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    rows = found.get("rows") if isinstance(found, dict) else None
    tabular = isinstance(rows, list) and all(isinstance(row, list) for row in rows)
    return rows if tabular else None


def gold_of(connection: sqlite3.Connection, sql: str) -> Gold:
    """Runs a right query. Raises NoGold if it fails, takes too long, or gives too much to
    compare."""
    until = time.monotonic() + SECONDS
    connection.set_progress_handler(lambda: time.monotonic() > until, _STEPS)
    try:
        with contextlib.closing(connection.execute(sql)) as cursor:
            if cursor.description is None:
                raise NoGold(_FAILS)
            rows = list(_bounded(cursor))
    except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as error:
        raise NoGold(_LATE if time.monotonic() > until else _FAILS) from error
    finally:
        connection.set_progress_handler(None, 0)
    return Gold(sql=sql, rows=rows, ordered=asks_for_order(sql))


def _bounded(cursor: sqlite3.Cursor) -> Iterator[list[Any]]:
    """The rows as the tool spells them in JSON. Raises NoGold for more than `MOST_CHARACTERS`."""
    room = MOST_CHARACTERS
    for found in cursor:
        row = [{"blob": one.hex()} if isinstance(one, bytes) else one for one in found]
        room -= len(json.dumps(row))
        if room < 0:
            raise NoGold("a gold query whose rows are too many to compare")
        yield row


@contextlib.contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """A database that the query cannot change: read-only, and reading is all that a statement may
    do. Raises sqlite3.Error without one."""
    connection = sqlite3.connect(f"file:{quote(str(path))}?mode=ro&immutable=1", uri=True)
    with contextlib.closing(connection):
        connection.text_factory = lambda data: data.decode("utf-8", "replace")
        connection.set_authorizer(
            lambda action, *_: sqlite3.SQLITE_OK if action in _READS else sqlite3.SQLITE_DENY
        )
        yield connection
