"""Makes a file of questions out of a published set and its databases: what `task.source` names.

    alias make="python -m toolwright.script questions.py"
    make skyrl_sql train.parquet --databases databases --output questions.jsonl
    make spider dev.json --databases databases --output spider_dev.jsonl
    make spider_prompts dev.json --gold dev_gold.sql --databases databases --output spider_dev.jsonl

Beside a question stand the right rows, which its gold query gives here and now, and the database's
schema. A question whose gold query fails, takes more than 5 s or gives too much to compare is left
out, and so is one without a database; the last line says how many and which was the first.
"""

from __future__ import annotations

import sqlite3
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from tasks.commands.writing import write_new
from tasks.errors import TaskFault
from tasks.judging.gold_rows import NoGold, gold_of, opened
from tasks.record import Record, line_of
from tasks.sets import Reading
from toolwright.script import Output

BRINGS_ITS_SCHEMA = ("spider_prompts",)
"""Sets whose questions describe the database; so does every row that has messages."""
_TABLES = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND type = 'table' ORDER BY rowid"


class PublishedQuestions:
    """The rows of the file: an iterable, one pass. left_out: how many for which reason."""

    def __init__(self, reading: Reading, databases: Path) -> None:
        self._reading = reading
        self._databases = databases
        self._schemas: dict[Path, str] = {}
        self.left_out: Counter[str] = Counter()
        self._first: dict[str, str] = {}

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        for record in self._reading:
            try:
                yield self._row(record)
            except NoGold as why:
                self.left_out[str(why)] += 1
                self._first.setdefault(str(why), record.id)

    def why_left_out(self) -> str:
        """A phrase for each reason; empty where all rows became questions."""
        told = [
            f"{count} with {reason}, the first is {self._first[reason]}"
            for reason, count in self.left_out.items()
        ]
        rejected = self._reading.why_rejected()
        return "; ".join([*([rejected] if rejected else []), *told])

    def _row(self, record: Record) -> Mapping[str, Any]:
        """Raises NoGold if the question cannot be asked."""
        path = self._database(record)
        try:
            with opened(path) as connection:
                if path not in self._schemas:
                    tables = connection.execute(_TABLES).fetchall()
                    self._schemas[path] = "\n".join(f"{sql};" for (sql,) in tables)
                gold = gold_of(connection, record.answer[0])
        except sqlite3.Error as error:
            raise NoGold("a database that cannot be read") from error
        row = record.row()
        described = record.messages or self._reading.layout.name in BRINGS_ITS_SCHEMA
        told = {} if described else {"schema": self._schemas[path]}
        return {**row, "answer": [gold.answer()], "metadata": {**row["metadata"], **told}}

    def _database(self, record: Record) -> Path:
        name = str(record.extra.get("database") or "")
        path = self._databases / name / f"{name}.sqlite"
        if not name or Path(name).name != name or not path.is_file():
            raise NoGold("a database that is not there")
        return path


def main(
    set: Annotated[str, "name of the set, as `tasks list` has it: skyrl_sql, spider"],
    file: Annotated[Path, "the published file, or a folder of them"],
    *,
    databases: Annotated[Path, "folder with <name>/<name>.sqlite"],
    output: Output,
    gold: Annotated[Path | None, "spider_prompts: its lines of SQL<TAB>database"] = None,
) -> None:
    """Make a file of questions with their right rows and schemas."""
    try:
        made = PublishedQuestions(Reading(set, file, gold=gold), databases)
        count = write_new(output, map(line_of, made))
    except TaskFault as error:
        sys.exit(f"questions: {error}")
    print(f"{output}: {count} questions; left out: {made.why_left_out() or 'none'}")
