"""Files of questions from published sets, of a few rows each."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tasks.judging.gold_rows import read_gold
from tests.support.recipes import Part
from toolwright.script import run

SPIDER = [
    {"question": "How many cats?", "query": "SELECT count(*) FROM cat", "db_id": "pets"},
    {"question": "Names, oldest first", "query": "SELECT name FROM cat ORDER BY age DESC",
     "db_id": "pets"},
    {"question": "How many dogs?", "query": "SELECT count(*) FROM dog", "db_id": "pets"},
    {"question": "How many owls?", "query": "SELECT count(*) FROM owl", "db_id": "birds"},
    {"question": "Where am I?", "query": "SELECT 1", "db_id": "../pets"},
    {"question": "No database", "query": "SELECT 1", "db_id": ""},
    {"question": "Broken", "query": "SELECT 1 FROM sqlite_master", "db_id": "broken"},
]  # fmt: skip


@pytest.fixture
def databases(tmp_path: Path) -> Path:
    root = tmp_path / "databases"
    (root / "pets").mkdir(parents=True)
    with contextlib.closing(sqlite3.connect(root / "pets" / "pets.sqlite")) as connection:
        connection.executescript(
            "CREATE TABLE cat (name TEXT, age INT); CREATE INDEX i ON cat (age);"
            "CREATE TABLE toy (id INTEGER); CREATE VIEW v AS SELECT 1;"
            "INSERT INTO cat VALUES ('Mio', 3), ('Tom', 9);"
        )
    (root / "broken").mkdir()
    (root / "broken" / "broken.sqlite").write_bytes(b"no database" * 1000)
    return root


def rows_of(part: Part, *arguments: object) -> list[dict[str, Any]]:
    *_, output = arguments
    run(part("questions.main"), [*map(str, arguments[:-1]), "--output", str(output)])
    return [json.loads(line) for line in Path(str(output)).read_text(encoding="utf-8").splitlines()]


def test_questions_have_their_rows_and_schema(
    part: Part, databases: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "dev.json").write_text(json.dumps(SPIDER), encoding="utf-8")
    count, names = rows_of(
        part, "spider", tmp_path / "dev.json", "--databases", databases, tmp_path / "out.jsonl"
    )
    assert (count["question"], names["question"]) == ("How many cats?", "Names, oldest first")
    gold = read_gold(names["answer"])
    assert (gold.rows, gold.ordered) == ([["Tom"], ["Mio"]], True)
    assert read_gold(count["answer"]).rows == [[2]]
    assert count["metadata"]["database"] == "pets"
    tables = "CREATE TABLE cat (name TEXT, age INT);\nCREATE TABLE toy (id INTEGER);"
    assert count["metadata"]["schema"] == tables
    assert "count(*)" not in json.dumps(count["metadata"])
    told = capsys.readouterr().out
    assert "2 questions; left out: " in told
    assert "1 with a gold query that fails, the first is spider-2" in told
    assert "3 with a database that is not there, the first is spider-3" in told
    assert "1 with a database that cannot be read, the first is spider-6" in told


def test_a_set_that_brings_its_schema_gets_no_other(
    part: Part, databases: Path, tmp_path: Path
) -> None:
    asked = [{"input_seq": "cat(name, age) How many?", "output_seq": "SELECT count(*) FROM cat"}]
    (tmp_path / "dev.json").write_text(json.dumps(asked), encoding="utf-8")
    (tmp_path / "gold.sql").write_text("SELECT count(*) FROM cat\tpets\n", encoding="utf-8")
    arguments = ("spider_prompts", tmp_path / "dev.json", "--gold", tmp_path / "gold.sql")
    (row,) = rows_of(part, *arguments, "--databases", databases, tmp_path / "out.jsonl")
    assert "schema" not in row["metadata"]
    assert row["question"] == "cat(name, age) How many?"


def test_both_forms_of_the_training_set(part: Part, databases: Path, tmp_path: Path) -> None:
    gold = "SELECT max(age) FROM cat"
    published = {
        "data_source": "synsql",
        "prompt": [{"role": "user", "content": "schema and question"}],
        "db_id": "pets",
        "reward_spec": {"ground_truth": gold},
        "extra_info": {"index": 0, "split": "train"},
    }
    prepared = {
        "prompt": [{"role": "user", "content": "schema and question"}],
        "extra_info": {"db_id": "pets", "gt_sql": gold, "index": 0, "question": "How old?"},
    }
    for number, row in enumerate((published, prepared)):
        file = tmp_path / f"{number}.jsonl"
        file.write_text(json.dumps(row) + "\n", encoding="utf-8")
        output = tmp_path / f"out{number}.jsonl"
        (made,) = rows_of(part, "skyrl_sql", file, "--databases", databases, output)
        assert read_gold(made["answer"]).rows == [[9]]
        assert made["metadata"]["database"] == "pets"
        assert ("schema" in made["metadata"]) == ("question" in made)


def test_faults_are_one_sentence(part: Part, databases: Path, tmp_path: Path) -> None:
    (tmp_path / "dev.json").write_text(json.dumps(SPIDER), encoding="utf-8")
    common = ("--databases", str(databases), "--output", str(tmp_path / "out.jsonl"))
    with pytest.raises(SystemExit, match="questions: set gsm8k"):
        run(part("questions.main"), ["gsm8k", str(tmp_path / "dev.json"), *common])
    assert not (tmp_path / "out.jsonl").exists()
    (tmp_path / "out.jsonl").write_text("mine", encoding="utf-8")
    with pytest.raises(SystemExit, match="is there already"):
        run(part("questions.main"), ["spider", str(tmp_path / "dev.json"), *common])
    assert (tmp_path / "out.jsonl").read_text(encoding="utf-8") == "mine"
