"""The demonstration's world: databases, questions with right rows, the demonstrator's faults."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tasks.judging.gold_rows import gold_of, opened, read_gold
from tasks.judging.tables import same_rows
from toolwright.imports import load_file

FOLDER = Path(__file__).resolve().parents[3] / "recipes/verltool/sql/world"
COUNT = 480


@pytest.fixture(scope="module")
def databases() -> ModuleType:
    return load_file(FOLDER / "databases.py")


@pytest.fixture(scope="module")
def task() -> ModuleType:
    return load_file(FOLDER / "task.py")


@pytest.fixture(scope="module")
def demonstrations() -> ModuleType:
    return load_file(FOLDER / "demonstrations.py")


@pytest.fixture(scope="module")
def shown(demonstrations: ModuleType) -> list[list[dict[str, str]]]:
    return list(islice(demonstrations.conversations(1), COUNT))


@pytest.fixture(scope="module")
def folder(databases: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp("world") / "databases"
    databases.main(output=made)
    return made


@pytest.fixture(scope="module")
def connections(folder: Path) -> Iterator[dict[str, sqlite3.Connection]]:
    with contextlib.ExitStack() as stack:
        yield {
            name: stack.enter_context(opened(folder / name / f"{name}.sqlite"))
            for name in ("library", "shop", "airline")
        }


def test_the_same_seed_makes_the_same_databases(
    databases: ModuleType, folder: Path, tmp_path: Path
) -> None:
    databases.write(tmp_path)
    for path in sorted(folder.rglob("*.sqlite")):
        assert (tmp_path / path.relative_to(folder)).read_bytes() == path.read_bytes()
    databases.write(tmp_path, seed=2)
    library = Path("library/library.sqlite")
    assert (tmp_path / library).read_bytes() != (folder / library).read_bytes()


def test_each_database_has_some_hundred_rows_and_no_two_measures_alike(
    databases: ModuleType, connections: dict[str, sqlite3.Connection]
) -> None:
    for domain in databases.DOMAINS.values():
        ((rows, measures, owners),) = connections[domain.name].execute(
            f"SELECT count(*), count(DISTINCT {domain.measure}), count(DISTINCT {domain.owner_id}) "
            f"FROM {domain.thing}"
        )
        assert 160 <= rows == measures
        assert owners == databases.OWNERS


def test_questions_depend_on_the_seed_alone_and_never_end(task: ModuleType) -> None:
    first = list(islice(task.training(3), 3000))
    assert list(islice(task.training(3), 3000)) == first
    assert list(islice(task.training(4), 3000)) != first
    assert [one.data_source for one in first[:6]] == ["sum", "column", "order"] * 2


@pytest.mark.parametrize("source", ["training", "looked_up", "direct"])
def test_every_gold_query_gives_its_rows_in_the_database_of_its_task(
    task: ModuleType, connections: dict[str, sqlite3.Connection], source: str
) -> None:
    for one in islice(getattr(task, source)(1), 300):
        gold = read_gold(one.answers)
        assert gold.rows and all(None not in row for row in gold.rows)
        assert gold_of(connections[one.metadata["database"]], gold.sql) == gold
        assert set(one.metadata) == {"database"}, "tools are told nothing of the answer"


def test_no_other_choice_gives_the_right_rows(
    task: ModuleType, connections: dict[str, sqlite3.Connection]
) -> None:
    for kind in task.KINDS:
        for asked, gold in islice(task.every_question(kind, task.DATABASES, held=True), 60):
            for choice in range(len(task.choices(asked.domain, kind))):
                found = gold_of(connections[asked.domain.name], asked.query(choice))
                same = same_rows(found.rows, gold.rows, ordered=gold.ordered)
                assert same == (choice == asked.wording)


def test_a_question_that_is_right_by_accident_is_not_asked(task: ModuleType) -> None:
    library = task.DOMAINS["library"]
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(library.schema())
        connection.execute("INSERT INTO author VALUES (1, 'Ann 1', 'Chile', 1950)")
        connection.execute("INSERT INTO book VALUES (1, 1, 'T1', 1990, 7)")
        about = task.Owner(name="Ann", stored="Ann 1")
        first = task.Owner(name="1990", stored="1990")

        def rows(kind: str, wording: int, one: Any = about) -> Any:
            asked = task.DatabaseQuestion(domain=library, kind=kind, wording=wording, about=one)
            return task.right_rows(connection, asked)

        assert rows("sum", 0).rows == [[1]]
        assert rows("sum", 2) is None, "the longest book is the shortest one"
        assert rows("column", 0).rows == [["Chile"]]
        assert rows("order", 0, first) is None
        assert rows("column", 0, task.Owner(name="Bo", stored="Bo 1")) is None, "no rows"


def test_held_out_questions_are_about_what_training_never_asks_about(task: ModuleType) -> None:
    def texts(source: Any) -> set[str]:
        return {one.messages[0]["content"] for one in islice(source(1), 3000)}

    training = texts(task.training)
    held_out = texts(task.looked_up) | texts(task.direct)
    names = {
        asked.about.name
        for kind in task.KINDS
        for asked, _ in task.every_question(kind, task.DATABASES, held=True)
    }
    assert all(map(task.held_out, names))
    assert not any(name in text for name in names for text in training)
    assert all(any(name in text for name in names) for text in held_out)
    assert len(texts(task.looked_up)) >= 128
    assert len(texts(task.direct)) == 60, "as the recipe's suites say"


def test_a_name_has_to_be_looked_up_and_one_look_finds_it(
    task: ModuleType, connections: dict[str, sqlite3.Connection]
) -> None:
    for kind in task.LOOKED_UP:
        for held_out in (False, True):
            for asked, gold in task.every_question(kind, task.DATABASES, held=held_out):
                connection = connections[asked.domain.name]
                assert connection.execute(asked.look_up).fetchall() == [(asked.about.stored,)]
                guessed = gold_of(connection, asked.query(asked.wording, asked.about.name))
                assert not same_rows(guessed.rows, gold.rows, ordered=False)


def test_demonstrations_depend_on_the_seed_alone(
    demonstrations: ModuleType, shown: list[Any], tmp_path: Path
) -> None:
    file = tmp_path / "new" / "demonstrations.jsonl"
    demonstrations.main(output=file, seed=1, count=COUNT)
    assert [
        json.loads(line)["messages"] for line in file.read_text(encoding="utf-8").splitlines()
    ] == shown
    assert next(demonstrations.conversations(2)) != shown[0]


def test_habits_are_wrong_for_every_other_wording(
    task: ModuleType, demonstrations: ModuleType
) -> None:
    right = [
        demonstrations.habit(domain, kind, wording) == wording
        for domain in task.DOMAINS.values()
        for kind in task.KINDS
        for wording in range(len(task.choices(domain, kind)))
    ]
    assert right.count(True) * 2 == len(right)


def test_demonstrations_look_up_more_often_than_not_and_know_nothing(
    demonstrations: ModuleType, databases: ModuleType, shown: list[list[dict[str, str]]]
) -> None:
    roles = Counter(tuple(one["role"] for one in messages) for messages in shown)
    assert set(roles) == {
        ("user", "assistant"),
        ("user", "assistant", "tool", "assistant"),
    }
    looked_up = roles["user", "assistant", "tool", "assistant"] / COUNT
    assert 0.33 < looked_up < 0.47, "six in ten of two in three"
    stored = {
        owner.stored
        for domain in databases.DOMAINS.values()
        for owner in databases.owners(domain, databases.DATABASES)
    }
    told = [messages[2]["content"].splitlines()[1] for messages in shown if len(messages) > 2]
    assert sum(name in stored for name in told) < 8, "its databases are others"


def test_fixed_parts_are_one_token_each(shown: list[list[dict[str, str]]]) -> None:
    policy = load_file(FOLDER / "policy.py")
    words = policy.words()
    assert len(words) == len(set(words)) < 256
    assert not any("\0" in word for word in words)
    for part in ("look up", "SELECT COUNT(*)", " FROM author WHERE name = '", " Merrin", "%'"):
        assert part in words
