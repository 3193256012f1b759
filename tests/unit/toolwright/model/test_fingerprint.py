"""What engine and learner compare: every shared key but those of the place, with both values."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.recipes import merged, recipe_tables, to_toml
from toolwright.model.fingerprint import (
    OF_THE_PLACE,
    Fingerprint,
    canonical_terms,
    difference,
    fingerprint,
    recipe_hash,
    terms_of,
)
from toolwright.recipe import MixedTask, Recipe, Tool, load_recipe


def recipe(folder: Path, *overrides: str, **changes: Any) -> Recipe:
    tables = recipe_tables(
        policy=Path("policy"), sampler="http://127.0.0.1:1", tools={"python": "a:1"}, engine="a:2"
    )
    file = folder / "recipe.toml"
    file.write_text(to_toml(merged(tables, changes)), encoding="utf-8")
    return load_recipe(file, overrides)


def made(folder: Path, *overrides: str, **changes: Any) -> Fingerprint:
    return fingerprint(recipe(folder, *overrides, **changes), tokenizer="t", shape="s")


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("run.group_size=16", "run.group_size is 2 in the engine and 16 here"),
        ("run.correction=token_truncate", 'run.correction is "bypass" in the engine'),
        ("policy.template.enable_thinking=false", 'and {"enable_thinking": false} here'),
        ('task.stops.answered="mask"', 'and {"answered": "mask"} here'),
        ("sampler.temperature=0.5", "sampler.temperature is 1.0 in the engine and 0.5 here"),
        ("tools.python.run_limit_s=3", "run_limit_s is null in the engine and 3.0 here"),
    ],
)
def test_an_override_given_to_one_alone_is_named(
    tmp_path: Path, override: str, sentence: str
) -> None:
    said = difference(made(tmp_path), made(tmp_path, override))
    assert said is not None
    assert sentence in said
    assert "--set" in said
    assert difference(made(tmp_path, override), made(tmp_path, override)) is None


def test_rows_that_grew_between_two_starts_are_named(tmp_path: Path) -> None:
    """Both have one recipe and count other steps: the sentence gives the engine's count."""
    rows, more = tmp_path / "rows.jsonl", ("run.epochs=2", "task.source=rows.jsonl")
    rows.write_text("{}\n" * 4, encoding="utf-8")
    engine = made(tmp_path, *more)
    assert difference(engine, made(tmp_path, *more)) is None
    rows.write_text("{}\n" * 40, encoding="utf-8")
    learner = made(tmp_path, *more)
    mine, its = (one.terms["run.steps"] for one in (learner, engine))
    assert mine > its
    said = str(difference(engine, learner))
    assert f"run.epochs = 2 gives {its} steps in the engine and {mine} here" in said
    assert f"--set run.steps={its}" in said
    counted = made(tmp_path, *more[1:], f"run.steps={its}")
    assert difference(engine, counted) is None, "the fix that the sentence names"


def test_addresses_and_patience_may_differ(tmp_path: Path) -> None:
    place = (
        "run.engine=10.0.0.1:9",
        "policy.model=elsewhere",
        "task.reward_threads=3",
        'sampler.endpoints=["http://10.0.0.2:1"]',
        "sampler.timeout_s=9",
        "tools.python.service=10.0.0.3:1",
        "tools.python.patience_s=1",
    )
    assert difference(made(tmp_path), made(tmp_path, *place)) is None


def test_what_may_differ_is_a_key_that_there_is(tmp_path: Path) -> None:
    """A key that was renamed would be compared by nobody's decision."""
    shared = recipe(tmp_path).shared
    there = {
        f"{table}.{key}"
        for table in ("run", "policy", "task", "sampler")
        for key in type(getattr(shared, table)).model_fields
    } | {
        f"{table}.*.{key}"
        for table, model in (("tools", Tool), ("tasks", MixedTask))
        for key in model.model_fields
    }
    assert there >= OF_THE_PLACE


def test_a_tool_that_one_side_lacks_is_named(tmp_path: Path) -> None:
    more = made(tmp_path, tools={"search": {"service": "a:3"}})
    assert "tools.search is true in the engine and nothing here" in str(
        difference(more, made(tmp_path))
    )
    assert "tools.search is nothing in the engine" in str(difference(made(tmp_path), more))


def test_terms_survive_the_wire_and_hash_alike(tmp_path: Path) -> None:
    terms = terms_of(recipe(tmp_path).shared)
    assert json.loads(canonical_terms(terms)) == terms
    assert recipe_hash(json.loads(canonical_terms(terms))) == recipe_hash(terms)
    assert recipe_hash(terms) != recipe_hash({**terms, "run.seed": 1})


def test_tokenizer_shape_folder_and_lineage(tmp_path: Path) -> None:
    engine = replace(made(tmp_path), lineages=("aa", "bb"))
    mine = replace(engine, lineages=("bb",))
    assert difference(engine, mine) is None
    assert "tokenizer or chat template" in str(difference(engine, replace(mine, tokenizer="x")))
    assert "other tensors" in str(difference(engine, replace(mine, shape="x")))
    assert "run.folder is" in str(difference(engine, replace(mine, folder="/else")))
    lost = str(difference(engine, replace(mine, lineages=("cc",))))
    assert "lineage cc" in lost
    assert "restore the journal" in lost


def test_what_a_side_does_not_know_is_not_compared(tmp_path: Path) -> None:
    mine = replace(made(tmp_path), lineages=("cc",))
    unknown = Fingerprint(terms={}, tokenizer="", shape="", folder="")
    assert difference(unknown, mine) is None
    assert difference(mine, replace(mine, tokenizer="", shape="", lineages=())) is None


def test_a_long_value_is_cut(tmp_path: Path) -> None:
    said = difference(made(tmp_path), made(tmp_path, f"task.source={'x' * 9999}"))
    assert said is not None
    assert len(said) < 400
