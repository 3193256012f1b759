"""What a page asks of the index: pages of the table, groups, what there is to choose from.

A page is found by the row that the page before ended with (keyset paging), never by counting rows:
the thousandth page costs as much as the first, and rows that come meanwhile shift nothing.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from console.web.index.index import TOOL_SEPARATOR
from console.web.index.label_store import A_WORD, label_choices
from console.web.index.labels import shown_value
from console.web.index.schema import NO_NUMBER, read_index
from console.web.index.types import NO_STEP

SORTS = {
    "arrival": "id",
    "step": "step",
    "reward": f"ifnull(reward, {NO_NUMBER})",
    "turns": "turns",
    "calls": "calls",
    "failed": "failed",
    "tokens": "tokens",
    "seconds": "seconds",
}
WITHIN = ("question", "wrote", "read")
ROWS = 50
MOST_ROWS = 200
MOST_WORDS = 16
LONGEST_SEARCH = 500
PATIENCE_S = 10.0
STEPS_A_LOOK = 10_000
"""Steps of SQLite's machine between two looks at the clock."""
MOST_MEMBERS = 256
MOST_CHOICES = 500

_LISTED = (
    "id, name, family, suite, kind, step, reward, stop, status, masked, turns, calls, failed,"
    " tokens, seconds, task, question, answer, tools"
)


class BadQuestion(ValueError):
    """A question that makes no sense; the message says which part, and what would."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Which rows, in which order. label, word: those that have this word under this key; both or
    neither. within: "" = everywhere. after: the `next` of the page before."""

    suite: str = ""
    stop: str = ""
    tool: str = ""
    family: str = ""
    label: str = ""
    word: str = ""
    text: str = ""
    within: str = ""
    step_from: int | None = None
    step_to: int | None = None
    reward_from: float | None = None
    reward_to: float | None = None
    failed: bool = False
    sort: str = "arrival"
    descending: bool = True
    after: str = ""
    limit: int = ROWS


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A page. total: rows of all pages; None but on the first one. next: "" = the last page."""

    rows: list[dict[str, Any]]
    next: str
    total: int | None


def page(file: Path, question: Question) -> Listed:
    """BadQuestion. sqlite3.Error."""
    where, values = _where(question)
    search = _search(question)
    key = SORTS[question.sort]
    way, order = ("<", "DESC") if question.descending else (">", "ASC")
    with _patient(file) as db:
        if search is not None:
            # Once for both statements below: a search costs more than they do.
            db.execute("CREATE TEMP TABLE found (id INTEGER PRIMARY KEY)")
            db.execute(*search)
        total = None
        if question.after:
            at, number = _cursor(question.after)
            paged = f"{where} AND ({key}, id) {way} (?, ?)"
        else:
            total = _total(db, question, where, values)
            paged, at, number = where, None, None
        more = () if at is None else (at, number)
        rows = db.execute(
            f"SELECT {_LISTED}, {key} AS sorted FROM rows WHERE {paged}"
            f" ORDER BY {key} {order}, id {order} LIMIT ?",
            (*values, *more, question.limit + 1),
        ).fetchall()
    kept = rows[: question.limit]
    following = _following(kept[-1]) if len(rows) > len(kept) else ""
    return Listed(rows=[_row(row) for row in kept], next=following, total=total)


def group(file: Path, family: str) -> list[dict[str, Any]]:
    """Members of a group in the order of their steps and names, MOST_MEMBERS at most."""
    with closing(read_index(file)) as db:
        rows = db.execute(
            f"SELECT {_LISTED} FROM rows WHERE family = ? ORDER BY step, id LIMIT ?",
            (family, MOST_MEMBERS),
        ).fetchall()
    return [_row(row) for row in rows]


def find(file: Path, name: str) -> dict[str, Any] | None:
    """A row with the place of its record: `source`, `at`, `part`, `sample`."""
    with closing(read_index(file)) as db:
        row = db.execute(
            f"SELECT {_LISTED}, source, at, part, sample FROM rows WHERE name = ?", (name,)
        ).fetchone()
    if row is None:
        return None
    return _row(row) | {key: row[key] for key in ("source", "at", "part", "sample")}


def choices(file: Path) -> dict[str, Any]:
    """What can be chosen: suites, stop reasons, tools and labels with their numbers of rows, the
    range of steps, and how many rows there are."""
    with closing(read_index(file)) as db:
        (count, first, last) = db.execute(
            f"SELECT count(*), min(step) FILTER (WHERE step > {NO_STEP}), max(step) FROM rows"
        ).fetchone()
        return {
            "rows": count,
            "steps": None if first is None else [first, last],
            "suites": _counted(db, "suite", "rows"),
            "stops": _counted(db, "stop", "rows"),
            "tools": _counted(db, "tool", "used"),
            "labels": [
                {
                    "key": one.key,
                    "words": [{"name": word.name, "rows": word.rows} for word in one.words],
                }
                for one in label_choices(db)
            ],
        }


def count(file: Path) -> int:
    """Rows that there are."""
    with closing(read_index(file)) as db:
        return int(db.execute("SELECT count(*) FROM rows").fetchone()[0])


def search_words(text: str, within: str = "") -> str:
    """An expression of FTS5: all words; one that ends in a star also as the beginning of others;
    what stands in quotes as it stands there. "" where nothing is looked for."""
    found = re.findall(r'"([^"]*)"?|([^\s"]+)', text[:LONGEST_SEARCH].replace("\0", " "))
    terms = [
        f'"{quoted or word}"{"*" if word.endswith("*") else ""}'
        for quoted, word in found[:MOST_WORDS]
        if any(letter.isalnum() for letter in quoted or word)
    ]
    words = " AND ".join(terms)
    return f"{{{within}}} : ({words})" if words and within else words


@contextmanager
def _patient(file: Path) -> Iterator[sqlite3.Connection]:
    """The index for one question, which is given up after PATIENCE_S. BadQuestion then."""
    deadline = time.monotonic() + PATIENCE_S
    with closing(read_index(file)) as db:
        db.set_progress_handler(lambda: time.monotonic() > deadline, STEPS_A_LOOK)
        try:
            yield db
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
                raise
            raise BadQuestion(
                f"the search takes longer than {PATIENCE_S:g} s: write whole words, or more"
            ) from error


def _total(db: sqlite3.Connection, question: Question, where: str, values: Sequence[Any]) -> int:
    """Rows that match. Those of a tool or a label alone are counted where only these stand: rows
    are wide, and a cold disk takes a second for the pages of a hundred thousand."""
    counted = f"rows WHERE {where}"
    if question.tool and where == _where(Question(tool=question.tool))[0]:
        counted = "used WHERE tool = ?"
    if question.label and where == _where(Question(label=question.label, word=question.word))[0]:
        counted = f"labels WHERE word = {A_WORD}"
    return int(db.execute(f"SELECT count(*) FROM {counted}", values).fetchone()[0])


def _where(question: Question) -> tuple[str, list[Any]]:
    """A condition of SQL, with the values of its marks. The search is what `found` holds."""
    if question.sort not in SORTS:
        raise BadQuestion(f"sort is one of {', '.join(SORTS)}")
    if question.within and question.within not in WITHIN:
        raise BadQuestion(f"within is one of {', '.join(WITHIN)}")
    if bool(question.label) != bool(question.word):
        raise BadQuestion("label and word come together: a key and the word under it")
    parts: list[str] = []
    values: list[Any] = []
    exact = {name: getattr(question, name) for name in ("suite", "stop", "family")}
    bounds: Mapping[str, float | None] = {
        "step >= ?": question.step_from,
        "step <= ?": question.step_to,
        "reward >= ?": question.reward_from,
        "reward <= ?": question.reward_to,
    }
    asked = {f"{name} = ?": value for name, value in exact.items() if value}
    for condition, value in [*asked.items(), *bounds.items()]:
        if value is not None:
            parts.append(condition)
            values.append(value)
    if question.tool:
        # Asked of each row in its order: a list of a frequent tool's rows would be sorted anew.
        parts.append("EXISTS (SELECT 1 FROM used WHERE tool = ? AND row = rows.id)")
        values.append(question.tool)
    if question.label and question.word:
        parts.append(f"EXISTS (SELECT 1 FROM labels WHERE word = {A_WORD} AND row = rows.id)")
        values += [question.label, shown_value(question.word)]
    if question.failed:
        parts.append("failed > 0")
    if question.text.strip():
        parts.append("id IN (SELECT id FROM found)")
    return " AND ".join(parts) or "1", values


def _search(question: Question) -> tuple[str, list[str]] | None:
    """A statement that fills the table `found` with the rows of these words, or of that name; None
    where nothing is looked for."""
    if not (text := question.text.strip()):
        return None
    columns = ("name", "family", "task")
    found = [f"SELECT id FROM rows WHERE {column} = ?" for column in columns]
    values = [_sound(text)] * len(columns)
    if words := search_words(text, question.within):
        found.append("SELECT rowid FROM texts WHERE texts MATCH ?")
        values.append(words)
    return f"INSERT OR IGNORE INTO found {' UNION ALL '.join(found)}", values


def _following(row: sqlite3.Row) -> str:
    told = json.dumps([repr(float(row["sorted"])), row["id"]])
    return base64.urlsafe_b64encode(told.encode()).decode()


def _cursor(text: str) -> tuple[float, int]:
    try:
        at, number = json.loads(base64.urlsafe_b64decode(text.encode()))
        return float(at), int(number)
    except (binascii.Error, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise BadQuestion("after is no end of a page: leave it out for the first page") from error


def _row(row: sqlite3.Row) -> dict[str, Any]:
    tools = row["tools"].split(TOOL_SEPARATOR) if row["tools"] else []
    step = None if row["step"] == NO_STEP else row["step"]
    told = {key: row[key] for key in _LISTED.split(", ")}
    del told["id"]
    return told | {"step": step, "tools": tools, "masked": bool(row["masked"])}


def _counted(db: sqlite3.Connection, column: str, table: str) -> list[dict[str, Any]]:
    rows = db.execute(
        f"SELECT {column}, count(*) FROM {table} WHERE {column} <> '' GROUP BY {column}"
        f" ORDER BY {column} LIMIT ?",
        (MOST_CHOICES,),
    )
    return [{"name": name, "rows": number} for name, number in rows]


def _sound(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
