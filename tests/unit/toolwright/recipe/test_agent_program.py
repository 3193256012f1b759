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
    bare = {} if agent.get("kind") in ("http", "container") else {"sandbox": "none"}
    tables["task"]["agent"] = {**bare, **agent}
    return load_recipe(write_recipe(folder, tables))


def words(found: Recipe) -> tuple[str, ...]:
    ((name, agent),) = started_agents(found).items()
    return agent_words(found, name, agent)


def test_files_of_the_recipe_get_their_whole_path(tmp_path: Path) -> None:
    (tmp_path / "agent.py").touch()
    found = words(recipe(tmp_path, kind="command", command=["python", "agent.py", "--fast"]))
    assert found == (sys.executable, str(tmp_path / "agent.py"), "--fast")


def test_the_interpreter_of_an_environment_keeps_its_environment(tmp_path: Path) -> None:
    """It is a link, and knows its packages by the path that it was started by. A jail shows its
    folder by the real path."""
    python = tmp_path / "real/bin/python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    (tmp_path / "env").symlink_to("real")
    found = words(recipe(tmp_path, kind="command", command=["env/bin/python", "env/bin/python"]))
    assert found == (str(python), str(python))


def test_a_function_is_called_by_our_interpreter(tmp_path: Path) -> None:
    (tmp_path / "agent.py").touch()
    found = words(recipe(tmp_path, kind="function", function="./agent.py:play"))
    assert found[:4] == (sys.executable, "-P", "-m", "agents.call")
    assert found[4] == f"{tmp_path / 'agent.py'}:play"


def test_external_agents_are_not_started(tmp_path: Path) -> None:
    for named in ({}, {"kind": "external"}):
        assert started_agents(recipe(tmp_path, **named)) == {}


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
        ({"kind": "http"}, "url belongs to"),
        ({"kind": "http", "url": "localhost:8000"}, "not a URL"),
        ({"kind": "http", "url": "http://me:secret@localhost"}, "use token_env"),
        ({"kind": "http", "url": "http://localhost", "sandbox": "none"}, "sandbox belongs to"),
        ({"kind": "http", "url": "http://a", "reward_from": "callback"}, "nothing reports later"),
        ({"kind": "http", "url": "http://localhost", "token_env": "NOT_SET"}, "set NOT_SET"),
        ({"kind": "container"}, "image belongs to"),
        ({"kind": "command", "command": ["python"], "memory_mib": 64}, "memory_mib belongs to"),
    ],
    ids=str,
)
def test_another_program_is_refused(tmp_path: Path, agent: dict[str, Any], says: str) -> None:
    with pytest.raises(RecipeError, match=says):
        words(recipe(tmp_path, **agent))


def test_a_service_has_no_words_and_a_container_its_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    assert words(recipe(tmp_path, kind="http", url="https://localhost:8000/agents?v=1")) == ()
    assert words(recipe(tmp_path, kind="container", image="a/b:c")) == ()
    named = recipe(tmp_path, kind="container", image="a/b:c", command=["agent", "--fast"])
    assert words(named) == ("agent", "--fast")
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    with pytest.raises(RecipeError, match="podman is not on PATH"):
        words(named)


def test_a_sandbox_that_is_not_there_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = recipe(tmp_path, kind="command", command=["python"], sandbox="bwrap")
    which = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "bwrap" else which(name))
    with pytest.raises(RecipeError, match="bwrap is not on PATH"):
        words(found)
