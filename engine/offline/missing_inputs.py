"""What a recipe names, is not there yet, and is made by `toolwright run` as the recipe says.

Tables of other programs are read as they stand: [sft] makes its `output`, a [[console.prepare]]
entry what it `makes`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from toolwright.recipe import Recipe

ROWS = (".jsonl", ".parquet")


def who_makes(recipe: Recipe, path: Path) -> str:
    """The table that makes `path`, which is not there yet; "" where it is, or where none does."""
    if path.exists():
        return ""
    return next((table for table, made in _makers(recipe) if made == path), "")


def who_makes_source(recipe: Recipe, source: str) -> str:
    """The same of a task source: a file of rows, or the Python file of a function."""
    file = source if source.endswith(ROWS) else source.rpartition(":")[0]
    return who_makes(recipe, recipe.resolve(file)) if file.endswith((*ROWS, ".py")) else ""


def policy_stand_in(recipe: Recipe) -> Path | None:
    """The folder of another model that has the tokenizer of a policy which is not there yet: the
    one that its warm-up begins with, or that its conversations are rendered with."""
    for name in ("sft", "render"):
        model = _table(recipe, name).get("model")
        if isinstance(model, str) and (recipe.resolve(model) / "tokenizer.json").is_file():
            return recipe.resolve(model)
    return None


def _makers(recipe: Recipe) -> Iterator[tuple[str, Path]]:
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
