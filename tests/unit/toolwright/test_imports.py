"""Objects by name: from modules and from files beside the recipe."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from toolwright.imports import ImportPathError, load_file, load_object


def test_from_a_module(tmp_path: Path) -> None:
    from engine.core.protocols.tagged import Tagged

    assert load_object("engine.api:Tagged", tmp_path) is Tagged
    assert load_object("engine.api:Tagged.decide", tmp_path) is Tagged.decide


def test_from_a_file_relative_to_the_folder(tmp_path: Path) -> None:
    (tmp_path / "my_reward.py").write_text("def score(t):\n    return 7\n", encoding="utf-8")
    assert load_object("./my_reward.py:score", tmp_path)(None) == 7
    assert load_object("my_reward.py:score", tmp_path)(None) == 7
    absolute = f"{tmp_path / 'my_reward.py'}:score"
    assert load_object(absolute, Path("/"))(None) == 7


def test_a_file_is_loaded_once_and_knows_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "neighbour_of_the_reward.py").write_text("VALUE = 3\n", encoding="utf-8")
    (tmp_path / "r.py").write_text(
        "from neighbour_of_the_reward import VALUE\ncount = []\n", encoding="utf-8"
    )
    before = list(sys.path)
    one = load_file(tmp_path / "r.py")
    one.count.append(1)
    assert load_object("r.py:count", tmp_path) == [1]
    assert one.VALUE == 3
    assert sys.path == before


def test_a_subfolder_imports_from_the_folder_of_the_recipe(tmp_path: Path) -> None:
    """As a flat recipe folder of an earlier version does."""
    (tmp_path / "world").mkdir()
    (tmp_path / "prompts_here.py").write_text("PROMPT = 'p'\n", encoding="utf-8")
    (tmp_path / "world/task.py").write_text(
        "import prompts_here as p\nfrom prompts_here import PROMPT\nBOTH = p.PROMPT + PROMPT\n",
        encoding="utf-8",
    )
    (tmp_path / "reward.py").write_text("from world.task import BOTH\n", encoding="utf-8")
    assert load_object("./reward.py:BOTH", tmp_path) == "pp"


def test_an_error_names_folders_and_the_missing_init_file(tmp_path: Path) -> None:
    (tmp_path / "world").mkdir()
    (tmp_path / "world/task.py").write_text("from ..words import W\n", encoding="utf-8")
    with pytest.raises(ImportPathError, match=r"needs an __init__\.py"):
        load_object("./world/task.py:W", tmp_path)
    (tmp_path / "flat.py").write_text("from .words import W\n", encoding="utf-8")
    with pytest.raises(ImportPathError) as error:
        load_object("./flat.py:W", tmp_path)
    assert str(tmp_path) in str(error.value)
    assert "toolwright_recipe_" not in str(error.value)


def test_files_of_two_folders_have_neighbours_of_one_name(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name / "kit_of_a_task").mkdir(parents=True)
        (tmp_path / name / "kit_of_a_task/__init__.py").write_text(
            "from . import inner\n", encoding="utf-8"
        )
        (tmp_path / name / "kit_of_a_task/inner.py").write_text(
            f"value = {name!r}\n", encoding="utf-8"
        )
        (tmp_path / name / "words_of_a_task.py").write_text(
            f"seen = []\nname = {name!r}\n", encoding="utf-8"
        )
        for file in ("task", "reward"):
            (tmp_path / name / f"{file}.py").write_text(
                "import words_of_a_task\nfrom kit_of_a_task.inner import value\n", encoding="utf-8"
            )
    tasks = [load_file(tmp_path / name / "task.py") for name in "ab"]
    rewards = [load_file(tmp_path / name / "reward.py") for name in "ab"]
    assert [task.words_of_a_task.name for task in tasks] == ["a", "b"]
    assert [task.value for task in tasks] == ["a", "b"]
    # Two files of one folder share what lies beside them.
    for task, reward in zip(tasks, rewards, strict=True):
        assert task.words_of_a_task is reward.words_of_a_task


def test_a_neighbour_does_not_hide_what_others_import(tmp_path: Path) -> None:
    import json

    (tmp_path / "json.py").write_text("value = 1\n", encoding="utf-8")
    (tmp_path / "r.py").write_text("import json\n", encoding="utf-8")
    assert load_file(tmp_path / "r.py").json is json
    assert sys.modules["json"] is json


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("r.py", "write it as package.module:name or ./file.py:name"),
        (":name", "write it as"),
        ("r.py:absent", "r.py has no 'absent'"),
        ("absent.py:name", "no file .*absent.py"),
        ("no.such.module:name", "cannot import no.such.module"),
        ("broken.py:name", "cannot be imported: ZeroDivisionError"),
        ("unreadable.py:name", r"cannot be imported: SyntaxError: .*\(unreadable\.py, line 1\)$"),
        ("broken_on_the_path:name", "cannot import broken_on_the_path: .*ZeroDivisionError"),
    ],
)
def test_what_cannot_be_had_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, words: str
) -> None:
    (tmp_path / "r.py").write_text("", encoding="utf-8")
    (tmp_path / "broken.py").write_text("1 / 0\n", encoding="utf-8")
    (tmp_path / "unreadable.py").write_text("def\n", encoding="utf-8")
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "broken_on_the_path.py").write_text("1 / 0\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    with pytest.raises(ImportPathError, match=words):
        load_object(path, tmp_path)


def test_a_file_that_failed_is_tried_again(tmp_path: Path) -> None:
    file = tmp_path / "r.py"
    file.write_text("1 / 0\n", encoding="utf-8")
    with pytest.raises(ImportPathError):
        load_file(file)
    file.write_text("value = 1\n", encoding="utf-8")
    assert load_file(file).value == 1


@pytest.mark.quick
@pytest.mark.parametrize("shape", ["tasks.py", "tasks/__init__.py"])
def test_a_neighbour_with_the_name_of_our_package_wins(tmp_path: Path, shape: str) -> None:
    import tasks.errors

    file = tmp_path / shape
    file.parent.mkdir(exist_ok=True)
    file.write_text("def grade():\n    return 7\n", encoding="utf-8")
    for name in ("first", "second"):
        (tmp_path / f"{name}.py").write_text("import tasks\nvalue = tasks.grade()\n", "utf-8")
    first, second = (load_file(tmp_path / f"{name}.py") for name in ("first", "second"))
    assert (first.value, second.value) == (7, 7)
    assert first.tasks is second.tasks
    assert sys.modules["tasks"] is tasks
    assert load_object("tasks.errors:TaskFault", tmp_path) is tasks.errors.TaskFault


@pytest.mark.quick
@pytest.mark.parametrize("line", ["import tasks.errors", "from tasks import errors"])
def test_a_neighbour_that_is_in_the_way_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "tasks.py").write_text("", encoding="utf-8")
    (tmp_path / "r.py").write_text(f"{line}\n", encoding="utf-8")
    with pytest.raises(ImportPathError, match=r"tasks\.py hides Toolwright's package 'tasks'"):
        load_file(tmp_path / "r.py")


@pytest.mark.quick
def test_a_folder_with_init_is_one_package(tmp_path: Path) -> None:
    """Relative imports reach the folder above; a file is one module, however it is named."""
    for name in "ab":
        world = tmp_path / name / "world"
        world.mkdir(parents=True)
        for folder in (tmp_path / name, world):
            (folder / "__init__.py").write_text("", encoding="utf-8")
        (tmp_path / name / "words.py").write_text(f"seen = [{name!r}]\n", encoding="utf-8")
        (world / "task.py").write_text("from ..words import seen\n", encoding="utf-8")
    tasks = [load_file(tmp_path / name / "world/task.py") for name in "ab"]
    assert [task.seen for task in tasks] == [["a"], ["b"]]
    for name, task in zip("ab", tasks, strict=True):
        assert load_file(tmp_path / name / "words.py").seen is task.seen


@pytest.mark.quick
@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("import words", "words.VALUE"),
        ("import words as w", "w.VALUE"),
        ("import kit.inner", "kit.inner.VALUE"),
        ("import kit.inner as k", "k.VALUE"),
        ("from kit.inner import VALUE", "VALUE"),
        ("def late():\n    from words import VALUE\n    return VALUE", "late()"),
    ],
)
def test_neighbours_by_their_bare_names(tmp_path: Path, line: str, found: str) -> None:
    (tmp_path / "kit").mkdir()
    for name in ("words.py", "kit/__init__.py", "kit/inner.py"):
        (tmp_path / name).write_text("VALUE = 3\n", encoding="utf-8")
    (tmp_path / "r.py").write_text(f"import os\n{line}\nresult = {found}\n", encoding="utf-8")
    assert load_file(tmp_path / "r.py").result == 3
