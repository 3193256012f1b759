"""A recipe over its fragments: one set of tables, or one sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.recipes import to_toml
from toolwright.recipe import RecipeError, load_recipe
from toolwright.recipe.layers import PACKAGED, packaged_fragments

TABLES: dict[str, Any] = {
    "run": {"name": "r", "folder": "out", "steps": 2, "groups_per_step": 3, "group_size": 4},
    "policy": {"model": "weights"},
    "task": {"source": "data.jsonl", "reward": "./my_reward.py:score"},
    "sampler": {"endpoints": ["http://127.0.0.1:1"]},
}


def write(file: Path, text: str, *, extends: list[str] | None = None) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    head = "" if extends is None else f"extends = {json.dumps(extends)}\n"
    file.write_text(head + text, encoding="utf-8")
    return file


def recipe(folder: Path, *extends: str) -> Path:
    return write(folder / "recipe.toml", to_toml(TABLES), extends=list(extends))


def refusal(file: Path, *overrides: str) -> str:
    with pytest.raises(RecipeError) as caught:
        load_recipe(file, overrides)
    return str(caught.value)


def test_fragments_in_their_order_then_the_recipe_then_the_command_line(tmp_path: Path) -> None:
    write(tmp_path / "a.toml", "[task.limits]\nturns = 1\naction = 1\nobservation = 1\n")
    write(tmp_path / "b.toml", "[task.limits]\naction = 2\nobservation = 2\nresponse = 2\n")
    text = to_toml(TABLES) + "[task.limits]\nobservation = 3\nresponse = 3\n"
    file = write(tmp_path / "recipe.toml", text, extends=["a.toml", "b.toml"])
    read = load_recipe(file, ["task.limits.response=4"])
    limits = read.shared.task.limits
    assert (limits.turns, limits.action, limits.observation, limits.response) == (1, 2, 3, 4)
    assert read.shared.task.source == "data.jsonl"
    assert [path.name for path in read.fragments] == ["a.toml", "b.toml"]


def test_a_name_is_meant_beside_the_file_that_says_it(tmp_path: Path) -> None:
    """A fragment in a folder of its own extends its neighbour; paths stay the recipe's."""
    write(tmp_path / "x" / "inner.toml", "[run]\nseed = 7\n[policy]\nmodel = 'inner'\n")
    write(tmp_path / "x" / "outer.toml", "[run]\nmax_staleness = 0\n", extends=["inner.toml"])
    write(tmp_path / "inner.toml", "[run]\nseed = 8\n")
    tables = {name: table for name, table in TABLES.items() if name != "policy"}
    file = write(tmp_path / "recipe.toml", to_toml(tables), extends=["x/outer.toml"])
    read = load_recipe(file)
    assert read.shared.run.seed == 7
    assert read.resolve(read.shared.policy.model) == tmp_path / "inner"
    assert [path.parent.name for path in read.fragments] == ["x", "x"]


def test_a_fragment_of_the_package_is_found_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    (name, *_) = packaged_fragments()
    assert load_recipe(recipe(tmp_path, name)).fragments[-1].name == Path(name).name
    own = write(tmp_path / name, "[run]\nseed = 99\n")  # beside the recipe goes before it
    read = load_recipe(recipe(tmp_path, name))
    assert (read.fragments, read.shared.run.seed) == ((own,), 99)


@pytest.mark.parametrize("chain", [["a.toml"], ["a.toml", "b.toml"], ["recipe.toml"]])
def test_a_circle_is_told_as_a_circle(tmp_path: Path, chain: list[str]) -> None:
    for name, following in zip(chain, [*chain[1:], chain[0]], strict=True):
        write(tmp_path / name, "", extends=[following])
    file = recipe(tmp_path, chain[0])
    said = refusal(file)
    assert "remove one of these lines" in said
    assert said.count(" extends ") == len(chain)


def test_what_is_missing_is_named_with_what_there_is(tmp_path: Path) -> None:
    said = refusal(recipe(tmp_path, "presets/vt_maths.toml"))
    assert "recipe.toml extends 'presets/vt_maths.toml'" in said
    assert "presets/vt_math.toml" in said
    assert "neither beside it" in refusal(recipe(tmp_path, "a\\u0000b"))
    assert "neither beside it" in refusal(recipe(tmp_path, "."))


@pytest.mark.parametrize("value", ['"a.toml"', "[1]", '[""]', "{ a = 1 }", "true"])
def test_extends_is_a_list_of_files(tmp_path: Path, value: str) -> None:
    file = write(tmp_path / "recipe.toml", f"extends = {value}\n" + to_toml(TABLES))
    assert 'extends = ["presets/vt_math.toml"], above the first table' in refusal(file)


def test_a_broken_fragment_is_named_itself(tmp_path: Path) -> None:
    write(tmp_path / "a.toml", "[run\n")
    assert refusal(recipe(tmp_path, "a.toml")).startswith(f"{tmp_path / 'a.toml'} is not valid")
    (tmp_path / "a.toml").write_bytes(b"\xff")
    assert refusal(recipe(tmp_path, "a.toml")).startswith(f"{tmp_path / 'a.toml'} cannot be read")
    write(tmp_path / "a.toml", "a = " + "[" * 5000)
    assert refusal(recipe(tmp_path, "a.toml")).startswith(f"{tmp_path / 'a.toml'} is not valid")


def test_a_wrong_value_names_the_fragments_that_it_may_stand_in(tmp_path: Path) -> None:
    write(tmp_path / "a.toml", "[run]\ngrup_size = 4\n")
    said = refusal(recipe(tmp_path, "a.toml"))
    assert "recipe.toml (with a.toml): run.grup_size: unknown key" in said
    write(tmp_path / "a.toml", "[runs]\n")
    assert "(with a.toml): unknown table [runs]" in refusal(recipe(tmp_path, "a.toml"))


def test_a_preset_is_no_recipe() -> None:
    (folder,) = (folder for folder in PACKAGED if folder.is_dir())
    said = refusal(folder / "presets" / "grpo.toml")
    assert said.endswith('begins with extends = ["presets/grpo.toml"]')


def test_the_command_line_extends_nothing(tmp_path: Path) -> None:
    assert "extends" in refusal(recipe(tmp_path), 'extends=["a.toml"]')
