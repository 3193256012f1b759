"""A run as it was asked for: the recipe under its options, its own folder, its seed.

`--folder` replaces run.folder. Files that the recipe makes inside run.folder are then made and read
inside of it, whatever key or command names them. So a recipe is trained again beside an older run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from console.asked import needs
from console.config import ConsoleTable
from console.errors import NothingStarted
from toolwright.recipe import Recipe, RecipeError, check_all, load_recipe

DEFAULT = "recipe.toml"


def beside(run: Path) -> Path:
    """Where the runs of `toolwright ablate` lie that is given no folder. run: run.folder."""
    return run.with_name(f"{run.name}-ablate")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What was typed."""

    recipe: Path
    overrides: tuple[str, ...] = ()
    seed: int | None = None
    folder: Path | None = None
    steps: int | None = None
    remake: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """`overrides`: what every process has to be told so that it reads this `recipe`."""

    recipe: Recipe
    table: ConsoleTable
    overrides: tuple[str, ...]

    @property
    def run(self) -> Path:
        """The run folder."""
        return self.recipe.run_folder

    @property
    def seed(self) -> int:
        return self.recipe.shared.run.seed

    @property
    def steps(self) -> int:
        """Raises RecipeError if run.epochs cannot be counted."""
        return self.recipe.steps


def set_up(options: Options) -> Setup:
    """NothingStarted where recipe or options do not fit."""
    file = options.recipe / DEFAULT if options.recipe.is_dir() else options.recipe
    try:
        asked = [*options.overrides, *_numbers(options)]
        recipe = load_recipe(file, asked)
        if options.seed is not None and "sft" in recipe.raw:
            asked.append(f"sft.seed={options.seed}")
        table = _table(recipe)
        if options.folder is not None:
            recipe, table, asked = _moved(file, recipe, table, asked, options.folder.absolute())
        return Setup(recipe=load_recipe(file, asked), table=table, overrides=tuple(_whole(asked)))
    except RecipeError as error:
        raise NothingStarted(str(error)) from error


def with_overrides(setup: Setup, more: Sequence[str]) -> Setup:
    """The same with further overrides. NothingStarted."""
    overrides = (*setup.overrides, *more)
    try:
        recipe = load_recipe(setup.recipe.path, overrides)
    except RecipeError as error:
        raise NothingStarted(str(error)) from error
    return Setup(recipe=recipe, table=setup.table, overrides=overrides)


def _numbers(options: Options) -> Iterator[str]:
    if options.steps is not None:
        yield f"run.steps={options.steps}"
    if options.seed is not None:
        yield f"run.seed={options.seed}"


def _table(recipe: Recipe) -> ConsoleTable:
    check_all(recipe)
    return recipe.table("console", ConsoleTable)


def _whole(asked: Sequence[str]) -> Iterator[str]:
    """Overrides without those that a later one of the same key replaces."""
    yield from {text.partition("=")[0]: text for text in asked}.values()


def _moved(
    file: Path, recipe: Recipe, table: ConsoleTable, asked: list[str], folder: Path
) -> tuple[Recipe, ConsoleTable, list[str]]:
    """Everything that is made inside of run.folder is made inside of `folder`."""
    old = recipe.run_folder
    new = folder.resolve()
    made = {
        maker.makes: new / maker.makes.relative_to(old)
        for maker in needs.makers(recipe, table)
        if maker.makes.is_relative_to(old)
    }
    moved = _Moved(recipe, made)
    tables = {name: value for name, value in recipe.raw.items() if name != "console"}
    asked = [*asked, *moved.overrides(tables), f"run.folder={new}"]
    prepare = tuple(
        one.model_copy(
            update={
                "makes": made.get(recipe.resolve(one.makes), one.makes),
                "run": tuple(map(moved.text, one.run)),
            }
        )
        for one in table.prepare
    )
    services = tuple(
        one.model_copy(update={"run": tuple(map(moved.text, one.run))}) for one in table.services
    )
    table = table.model_copy(update={"prepare": prepare, "services": services})
    return load_recipe(file, asked), table, asked


class _Moved:
    """Texts of a recipe under which paths that it makes are elsewhere."""

    def __init__(self, recipe: Recipe, made: Mapping[Path, Path]) -> None:
        self._recipe = recipe
        self._made = made

    def overrides(self, tables: Mapping[str, Any], key: str = "") -> Iterator[str]:
        """For every value that names such a path; a list is said whole."""
        for name, value in tables.items():
            if isinstance(value, Mapping):
                yield from self.overrides(value, f"{key}{name}.")
            elif (moved := self._value(value)) != value:
                yield f"{key}{name}={moved if isinstance(moved, str) else _toml(moved)}"

    def text(self, text: str) -> str:
        """A path, or the Python file of a function, FILE:NAME."""
        if (path := self._found(text)) is not None:
            return str(path)
        file, colon, name = text.rpartition(":")
        if file.endswith(".py") and (path := self._found(file)) is not None:
            return f"{path}{colon}{name}"
        return text

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self._value(one) for one in value]
        if isinstance(value, Mapping):
            return {name: self._value(one) for name, one in value.items()}
        return value

    def _found(self, text: str) -> Path | None:
        return self._made.get(needs.path(self._recipe, text)) if text else None


def _toml(value: Any) -> str:
    """A value as TOML has it on one line."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_toml(k)} = {_toml(v)}' for k, v in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value).lower() if isinstance(value, bool) else str(value)
