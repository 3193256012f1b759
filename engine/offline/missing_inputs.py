"""Inputs of a recipe that do not exist yet because `toolwright run` produces them.

[sft] produces its `output`, a [[console.prepare]] entry what it `makes`. Both tables belong to
other programs and are read unchecked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from toolwright.recipe import Recipe

ROWS = (".jsonl", ".parquet")


def producer_of(recipe: Recipe, path: Path) -> str:
    """The table that produces a missing `path`; "" if the path exists or no table produces it."""
    if path.exists():
        return ""
    return next((table for table, made in _producers(recipe) if made == path), "")


def producer_of_source(recipe: Recipe, source: str) -> str:
    """The table that produces a task source: a file of rows, or the Python file of a function."""
    file = source if source.endswith(ROWS) else source.rpartition(":")[0]
    return producer_of(recipe, recipe.resolve(file)) if file.endswith((*ROWS, ".py")) else ""


def stand_in_for_policy(recipe: Recipe) -> Path | None:
    """A folder with the tokenizer of a policy that does not exist yet.

    It is the model that the warm-up starts from, or that conversations are rendered with.
    """
    for name in ("sft", "render"):
        model = _table(recipe, name).get("model")
        if isinstance(model, str) and (recipe.resolve(model) / "tokenizer.json").is_file():
            return recipe.resolve(model)
    return None


def _producers(recipe: Recipe) -> Iterator[tuple[str, Path]]:
    prepare = _table(recipe, "console").get("prepare")
    for one in prepare if isinstance(prepare, list) else ():
        made = one.get("makes") if isinstance(one, Mapping) else None
        if isinstance(made, str):
            yield f"[[console.prepare]] {one.get('name', '')!r}", recipe.resolve(made)
    if "sft" in recipe.raw:
        output = _table(recipe, "sft").get("output")
        given = output if isinstance(output, str) and output else recipe.run_folder / "sft/final"
        yield "[sft]", recipe.resolve(given)


def _table(recipe: Recipe, name: str) -> Mapping[str, Any]:
    found = recipe.raw.get(name)
    return found if isinstance(found, Mapping) else {}
