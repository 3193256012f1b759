"""What a recipe reads and what it can make, as `plan` wants it: keys with whole paths."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from console.asked.plan import Maker, Need
from console.config import ConsoleTable
from toolwright.recipe import Recipe, task_key
from toolwright.recipe.models.spelling import is_url

ROWS = (".jsonl", ".parquet")


def goals(recipe: Recipe) -> tuple[Need, ...]:
    """What engine and learner read when they start."""
    found = [Need(key="policy.model", path=recipe.resolve(recipe.shared.policy.model))]
    for name, task in recipe.shared.each_task.items():
        found += _source(recipe, f"{task_key(name)}.source", task.source)
    evaluation = _table(_table(recipe.raw, "engine"), "evaluation")
    for suite in evaluation.get("suites", ()):
        key = f"engine.evaluation.suites {suite['name']!r}.source"
        found += _source(recipe, key, suite["source"])
    return (*found, *_teachers(recipe))


def makers(recipe: Recipe, table: ConsoleTable) -> tuple[Maker, ...]:
    """[[console.prepare]] in the recipe's order, then [render] and [sft], where they are."""
    prepared = [
        Maker(
            kind="prepare",
            name=one.name,
            makes=recipe.resolve(one.makes),
            run=one.run,
            when_read=one.when_read,
        )
        for one in table.prepare
    ]
    made = {maker.makes for maker in prepared}
    known = []
    for maker in prepared:
        # A word of the command that is what another command makes.
        read = tuple(
            Need(key=maker.where, path=found)
            for word in maker.run
            if (found := path(recipe, word)) in made and found != maker.makes
        )
        known.append(replace(maker, needs=read))
    return (*known, *_render(recipe), *_sft(recipe))


def path(recipe: Recipe, word: str) -> Path:
    """A word of a command, as the path that it may be."""
    return recipe.resolve(word.replace("\0", ""))


def warm_up_model(recipe: Recipe) -> Path:
    """What the warm-up begins with: weights of the policy's shape."""
    given = _table(recipe.raw, "sft").get("model")
    return recipe.resolve(given) if given else recipe.resolve(recipe.shared.policy.model)


def _render(recipe: Recipe) -> Iterator[Maker]:
    if "render" not in recipe.raw:
        return
    table = _table(recipe.raw, "render")
    given = table["conversations"]
    files = given.values() if isinstance(given, Mapping) else (given,)
    needs = (
        *(Need(key="render.conversations", path=recipe.resolve(file)) for file in files),
        _need(recipe, table, "render", "model"),
    )
    output = recipe.resolve(table["output"])
    yield Maker(kind="render", name="render", makes=output, needs=needs)


def _sft(recipe: Recipe) -> Iterator[Maker]:
    if "sft" not in recipe.raw:
        return
    table = _table(recipe.raw, "sft")
    needs = [_need(recipe, table, "sft", "data"), _need(recipe, table, "sft", "model")]
    heldout = _table(table, "heldout").get("data")
    if heldout:
        needs.append(Need(key="sft.heldout.data", path=recipe.resolve(heldout)))
    output = table.get("output")
    makes = recipe.resolve(output) if output else recipe.run_folder / "sft" / "final"
    yield Maker(kind="sft", name="sft", makes=makes, needs=tuple(needs))


def _need(recipe: Recipe, table: Mapping[str, Any], name: str, key: str) -> Need:
    """A model that is not named is the policy's."""
    given = table.get(key) or recipe.shared.policy.model
    return Need(key=f"{name}.{key}", path=recipe.resolve(given))


def _teachers(recipe: Recipe) -> Iterator[Need]:
    """The folders that a distillation reads; not the servers of teachers."""
    learner = _table(recipe.raw, "learner")
    distill = _table(learner, "distill")
    if _table(learner, "loss").get("kind") != "distill":
        return
    of_tasks = _table(distill, "teachers")
    named = {"teacher": distill.get("teacher")}
    named |= {f"teachers.{task}": folder for task, folder in of_tasks.items()}
    for key, folder in named.items():
        if folder and not is_url(folder):
            yield Need(key=f"learner.distill.{key}", path=recipe.resolve(folder))


def _source(recipe: Recipe, key: str, source: str) -> Iterator[Need]:
    """A file of rows, or the Python file of a function; a module is Python's own to find."""
    file = source if source.endswith(ROWS) else source.rpartition(":")[0]
    if file.endswith((*ROWS, ".py")):
        yield Need(key=key, path=recipe.resolve(file))


def _table(tables: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = tables.get(name, {})
    return found if isinstance(found, Mapping) else {}
