"""Mistakes that people make in a recipe, and the mend that each is told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import get_args

import pytest

from toolwright.recipe import (
    RecipeError,
    Shared,
    check_all,
    load_recipe,
    registered_tables,
)
from toolwright.recipe.diagnostics import synonyms
from toolwright.recipe.diagnostics.keys import table_of
from toolwright.recipe.models.table import Either, OfKind, ReadIf, Table

RECIPE = """
[run]
name = "r"
folder = "out"
steps = 2
groups_per_step = 3
group_size = 4
[policy]
model = "weights"
[task]
source = "data.jsonl"
reward = "./my_reward.py:score"
[sampler]
endpoints = ["http://127.0.0.1:1"]
"""


def refusal(folder: Path, *overrides: str) -> str:
    (folder / "recipe.toml").write_text(RECIPE, encoding="utf-8")
    with pytest.raises(RecipeError) as caught:
        check_all(load_recipe(folder / "recipe.toml", overrides))
    text = str(caught.value)
    where = f"{folder / 'recipe.toml'} (with --set): "
    assert text.startswith(where) and "\n" not in text
    return text.removeprefix(where)


@pytest.mark.parametrize(
    ("override", "words"),
    [
        # Another program's word for it, or the wrong half of a method.
        ("learner.loss.kind=GRPO", "not 'GRPO': GRPO is an estimator with loss kind 'ppo': set "),
        ("learner.advantage.estimator=gspo", "GSPO is a loss: set learner.loss.kind = 'gspo'"),
        ("learner.advantage.estimator=gae", "there is no critic here"),
        ("learner.kl.estimator=low_var_kl", "this is 'k3' here"),
        ("run.correction=tis", "this is 'token_truncate' here"),
        # A value of another kind, or out of range.
        ("run.steps=1.5", "run.steps: write a whole number, not 1.5"),
        ("sampler.temperature=warm", "sampler.temperature: write a number, not 'warm'"),
        ("task.shuffle=perhaps", "task.shuffle: write true or false, not 'perhaps'"),
        ("run.name=3", "run.name: write a text in quotation marks, not 3"),
        ("run.steps=-1", "run.steps: Input should be greater than or equal to 0, not -1"),
        # A slip of the pen.
        ("learner.loss.kind=GSPO", "not 'GSPO' (did you mean 'gspo'?)"),
        ("learner.precision=bf16", "(did you mean 'bfloat16'?)"),
        ('learner.loss.kind=["grpo"]', "not ['grpo']"),
        # A value where a table belongs.
        ("learner.lora=true", "learner.lora: write a table: [learner.lora] rank = 16"),
        ("sft.lora=false", "sft.lora: leave the table out instead"),
        ("learner.kl=0.01", "[learner.kl] coefficient = 0.01"),
        ("learner.loss=gspo", '[learner.loss] kind = "gspo"'),
        ("learner=3", "learner: write a table: [learner]"),
        ("sft.heldout=held.trajectories", '[sft.heldout] data = "held.trajectories"'),
        ("policy.model=3", "policy.model: write a path in quotation marks"),
        ("task.stops=mask", "task.stops: write a table: [task.stops]"),
        ("run=3", "run: write a table: [run] name = ..."),
        ("engine.evaluation.suites=[3]", "write a table: [[engine.evaluation.suites]] name = ..."),
        ("tools.python=127.0.0.1:7", '[tools.python] service = "127.0.0.1:7"'),
        ("tools=3", "tools: write a table for each: [tools.NAME]"),
        ("engine.evaluation.suites={n=1}", "write [[engine.evaluation.suites]], with two brackets"),
        # A key in the wrong table, or another program's name for it.
        ("learner.steps=3", "(belongs to run or sft)"),
        ('sampler.extends=["a.toml"]', "(stands at the top, above the first table)"),
        ("run.temperature=1", "(belongs to sampler or engine.evaluation.suites.NAME)"),
        ("learner.sft.steps=3", "learner.sft: unknown key (is a table of its own: [sft])"),
        ("loss.kind=ppo", "(belongs to learner)"),
        ("learner.batch_size=8", "(belongs to sft; or is run.groups_per_step here)"),
        ("tools.python.url=x", "(is tools.NAME.service here)"),
        # A slip in a table that is optional, of several, or whose neighbour has that name.
        ("learner.lora.rnk=3", "(did you mean 'rank'?)"),
        ("tools.run.name=3", "tools.run.name: unknown key (did you mean 'names'?)"),
        ('engine.evaluation.suites=[{whne="last"}]', "suites.0.whne: unknown key (did you mean"),
    ],
)
def test_a_mistake_is_told_its_mend(tmp_path: Path, override: str, words: str) -> None:
    assert words in refusal(tmp_path, override)


def test_what_is_everywhere_is_no_hint(tmp_path: Path) -> None:
    """`seed`, `model` and the like stand in many tables."""
    assert refusal(tmp_path, "run.model=x") == "run.model: unknown key"
    assert refusal(tmp_path, "learner.epilson=1") == "learner.epilson: unknown key"


def tables(model: type[Table]) -> Iterator[type[Table]]:
    yield model
    for field in model.model_fields.values():
        for kind in (field.annotation, *get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, Table):
                yield from tables(kind)


def test_a_synonym_belongs_to_one_existing_key() -> None:
    models = [Shared, *(point.load() for point in registered_tables().values())]
    every = {table for top in models for table in tables(top)}
    for model in every:
        keys, values = synonyms.of_keys(model.synonyms), synonyms.of_values(model.synonyms)
        others = [name for names in keys.values() for name in names]
        assert keys.keys() <= model.model_fields.keys(), model
        assert len(others) == len(set(others)), model
        assert not set(others) & model.model_fields.keys(), model
        assert values.keys() <= model.model_fields.keys(), model
        for words in values.values():
            assert all(word == word.lower().replace("-", "_") for word in words)
    assert {model.synonyms for model in every if model.synonyms} == synonyms.tables()


def test_a_rule_names_existing_keys() -> None:
    models = {"": Shared, **{name: point.load() for name, point in registered_tables().items()}}
    rules = 0
    for model in (table for top in models.values() for table in tables(top)):
        for rule in model.rules:
            match rule:
                case Either(first, second) | OfKind(first, second):
                    assert {first, second} <= model.model_fields.keys(), rule
                case ReadIf(key, cases):
                    named = [key, *(name for case in cases for name in case)]
                    assert all(exists(models, name.split(".")) for name in named), rule
            rules += 1
    assert rules > 40
    assert not exists(models, ["learner", "loss", "sort"])


def exists(models: Mapping[str, type[Table]], path: list[str]) -> bool:
    first, *rest = path
    if first in models:
        return exists({"": models[first]}, rest)
    field = models[""].model_fields.get(first)
    inner = table_of(field.annotation) if field else None
    return field is not None and (not rest or (inner is not None and exists({"": inner}, rest)))


def test_what_is_told_is_where_the_key_stands(tmp_path: Path) -> None:
    """Of many fragments only those that say it."""
    (tmp_path / "a.toml").write_text("[run]\nseed = 'x'\n", encoding="utf-8")
    (tmp_path / "b.toml").write_text("[learner]\nupdates = 0\n", encoding="utf-8")
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "recipe.toml").write_text("[run]\nseed = 1\n", encoding="utf-8")
    file = tmp_path / "recipe.toml"
    file.write_text(
        'extends = ["below/recipe.toml", "a.toml", "b.toml"]\n' + RECIPE, encoding="utf-8"
    )
    with pytest.raises(RecipeError) as caught:
        load_recipe(file)
    assert str(caught.value).startswith(f"{file} (with recipe.toml, a.toml): run.seed: ")
    with pytest.raises(RecipeError) as caught:
        check_all(load_recipe(file, ["run.seed=1"]))
    assert str(caught.value).startswith(f"{file} (with b.toml): learner.updates: ")
    with pytest.raises(RecipeError) as caught:
        load_recipe(file, ["run.seed=1", "run.steps=-1"])
    assert str(caught.value).startswith(f"{file} (with --set): run.steps: ")
    file.write_text(RECIPE.replace("steps = 2", "steps = -2"), encoding="utf-8")
    with pytest.raises(RecipeError) as caught:
        load_recipe(file)
    assert str(caught.value).startswith(f"{file}: run.steps: ")


def test_long_and_strange_names_are_told_as_they_are(tmp_path: Path) -> None:
    strange = "x" * 10_000
    assert refusal(tmp_path, f"learner.{strange}=1") == f"learner.{strange}: unknown key"
    assert "unknown key" in refusal(tmp_path, 'learner.loss={"a.b"=1}')
    assert len(refusal(tmp_path, f"learner.loss.kind={strange}")) < 300
    assert "unknown table []" in refusal(tmp_path, ".kind=1")


def test_only_an_agent_that_reports_needs_no_reward(tmp_path: Path) -> None:
    assert "task: reward is missing" in refusal(tmp_path, "task.reward=")
    assert "reward is missing" in refusal(tmp_path, "task.reward=", "task.agent={}")
    file = tmp_path / "reports.toml"
    file.write_text(RECIPE.replace('reward = "./my_reward.py:score"\n', ""), encoding="utf-8")
    for source in ("agent", "callback"):
        recipe = load_recipe(file, [f"task.agent.reward_from={source}"])
        assert recipe.shared.task.reward == ""


def test_an_agent_of_its_own_does_not_branch(tmp_path: Path) -> None:
    words = refusal(tmp_path, "task.agent.sampling=request", "task.branching.beam=2")
    assert "[task.agent] and [task.branching] exclude each other" in words
