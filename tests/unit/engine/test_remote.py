"""`engine submit` and `engine watch` before they reach an engine, and the lines that they print."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from engine.cli import ENGINE, app
from engine.client import WatchedEvent, _requests
from engine.config import EngineTable
from engine.errors import RequestFailed, StartupError
from engine.offline.check.command import check
from engine.offline.remote import _line, tasks_of
from tests.support.recipes import merged, recipe_tables, write_recipe
from toolwright.recipe import load_recipe
from toolwright.types import Task


def written(folder: Path, *rows: object) -> Path:
    file = folder / "more.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return file


def test_rows_become_tasks_that_are_known_again(tmp_path: Path) -> None:
    file = written(tmp_path, {"prompt": "q", "answer": 1}, {"id": "own", "prompt": "r"})
    first, second = tasks_of(file, "math")
    assert (first.id, first.name, first.answers) == ("more-0", "math", ("1",))
    assert second.id == "own"
    assert list(tasks_of(file, "math")) == [first, second]


@pytest.mark.parametrize(
    ("row", "why"),
    [({"answer": 1}, "more.jsonl:2"), ({"prompt": "q", "images": ["a.png"]}, "cannot have images")],
)
def test_a_row_that_cannot_be_submitted_is_named(tmp_path: Path, row: object, why: str) -> None:
    file = written(tmp_path, {"prompt": "q"}, row)
    with pytest.raises(StartupError, match=why):
        list(tasks_of(file, ""))


def test_a_file_of_another_kind_and_a_wrong_address_end_with_a_sentence(tmp_path: Path) -> None:
    run = CliRunner().invoke
    refused = run(app, ["submit", str(tmp_path / "tasks.csv")])
    assert refused.exit_code == 1
    assert "a file of tasks ends in .jsonl or .parquet" in refused.output
    assert run(app, ["watch", "--engine", "http://localhost:1"]).exit_code == 2


def test_many_tasks_are_several_requests_in_their_order() -> None:
    tasks = [Task(id=f"t{number}", prompt="q") for number in range(600)]
    requests = [[task.id for task in request.tasks] for request in _requests(tasks)]
    assert [len(ids) for ids in requests] == [256, 256, 88]
    assert [name for ids in requests for name in ids] == [task.id for task in tasks]


def test_a_task_that_no_message_holds_is_named() -> None:
    with pytest.raises(RequestFailed, match="task 'odd' cannot be submitted"):
        list(_requests([Task(id="odd", prompt="q", metadata={"x": object()})]))


def test_an_event_is_one_line_whatever_it_holds() -> None:
    data = {"task": "a\nb\x1b[31m", "reward": 0.5, "time_s": 0.0}
    line = _line(WatchedEvent(number=1, kind="rewarded", data=data))
    assert "rewarded" in line
    assert "reward=0.5" in line
    assert line.isprintable()


def checked(folder: Path, policy: Path, **changes: object) -> list[str]:
    """The lines of `engine check` for a recipe whose tasks are submitted."""
    tables = recipe_tables(policy=policy, sampler="http://127.0.0.1:1", tools={}, engine=ENGINE)
    file = write_recipe(folder, merged(tables, {"task": {"source": "submitted"}, **changes}))
    recipe = load_recipe(file)
    return list(check(recipe, recipe.table("engine", EngineTable), connect=False))


def test_engine_check_says_that_tasks_are_submitted(tmp_path: Path, policy_folder: Path) -> None:
    assert "task source: tasks that clients submit (`engine submit`)" in checked(
        tmp_path, policy_folder
    )


def test_an_evaluation_takes_no_submitted_tasks(tmp_path: Path, policy_folder: Path) -> None:
    suite = {"name": "s", "source": "submitted", "n": 1}
    with pytest.raises(StartupError, match="only `engine serve` takes submitted tasks"):
        checked(tmp_path, policy_folder, engine={"evaluation": {"suites": [suite]}})
