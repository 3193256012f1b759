"""The program of [task.agent]: what is found, and what is refused in one sentence."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.recipes import recipe_tables, write_recipe
from toolwright.recipe import Recipe, RecipeError, load_recipe
from toolwright.recipe.agent_program import agent_words, started_agents

pytestmark = pytest.mark.quick


def recipe(folder: Path, **agent: Any) -> Recipe:
    address = "127.0.0.1:9"
    tables = recipe_tables(policy=folder, sampler=f"http://{address}", tools={}, engine=address)
    tables["task"]["agent"] = {"sandbox": "none", **agent}
    return load_recipe(write_recipe(folder, tables))


def words(found: Recipe) -> tuple[str, ...]:
    ((name, agent),) = started_agents(found).items()
    return agent_words(found, name, agent)


def test_files_of_the_recipe_get_their_whole_path(tmp_path: Path) -> None:
    (tmp_path / "agent.py").touch()
    found = words(recipe(tmp_path, kind="command", command=["python", "agent.py", "--fast"]))
    assert found == (sys.executable, str(tmp_path / "agent.py"), "--fast")


def test_the_interpreter_of_a_virtual_environment_stays_one(tmp_path: Path) -> None:
    (tmp_path / "env/bin").mkdir(parents=True)
    (tmp_path / "env/bin/python").symlink_to(sys.executable)
    for word in ("./env/bin/python", str(tmp_path / "env/bin/python")):
        found = words(recipe(tmp_path, kind="command", command=[word]))
        assert found == (str(tmp_path / "env/bin/python"),)


def test_a_function_is_called_by_our_interpreter(tmp_path: Path) -> None:
    (tmp_path / "agent.py").touch()
    found = words(recipe(tmp_path, kind="function", function="./agent.py:play"))
    assert found[:4] == (sys.executable, "-P", "-m", "agents.call")
    assert found[4] == f"{tmp_path / 'agent.py'}:play"


def test_external_agents_are_not_started(tmp_path: Path) -> None:
    assert started_agents(recipe(tmp_path)) == {}


@pytest.mark.parametrize(
    ("agent", "says"),
    [
        ({"kind": "command"}, "command belongs to"),
        ({"kind": "external", "function": "a:b"}, "function belongs to"),
        ({"kind": "command", "command": ["no-such-program"]}, "is not a program"),
        ({"kind": "command", "command": ["./agent.sh"]}, "is not a program"),
        ({"kind": "command", "command": ["python", "none.py"]}, "no file .*none.py"),
        ({"kind": "function", "function": "./none.py:play"}, "no file .*none.py"),
        ({"kind": "function", "function": "no_such_module:play"}, "no module no_such_module"),
        ({"kind": "function", "function": "play"}, "write module:function"),
        ({"kind": "command", "command": ["python"], "folders": ["none"]}, "no folder .*none"),
    ],
    ids=str,
)
def test_another_program_is_refused(tmp_path: Path, agent: dict[str, Any], says: str) -> None:
    with pytest.raises(RecipeError, match=says):
        words(recipe(tmp_path, **agent))


def test_a_sandbox_that_is_not_there_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = recipe(tmp_path, kind="command", command=["python"], sandbox="bwrap")
    which = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "bwrap" else which(name))
    with pytest.raises(RecipeError, match="bwrap is not on PATH"):
        words(found)
