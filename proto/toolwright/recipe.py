"""The recipe: one TOML file that every process reads.

Owns the names of the tables. The models of the shared ones stand in `toolwright.shared_tables`;
this module gives them too. Every other table belongs to one process, which registers its model
under the entry-point group `toolwright.tables`. A process checks the shared tables and its own and
refuses unknown keys there, and everybody refuses a table whose name nobody knows. Paths are
relative to the recipe file's folder.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from toolwright.assignments import AssignmentError, assign
from toolwright.shared_tables import (
    ARCHITECTURES,
    VISION_ARCHITECTURES,
    DynamicSampling,
    ForeignText,
    Limits,
    Overlong,
    Policy,
    Run,
    Sampler,
    Shared,
    Table,
    TaskTable,
    Tool,
)

__all__ = [
    "ARCHITECTURES",
    "ENTRY_POINTS",
    "SHARED",
    "VISION_ARCHITECTURES",
    "DynamicSampling",
    "ForeignText",
    "Limits",
    "Overlong",
    "Policy",
    "Recipe",
    "RecipeError",
    "Run",
    "Sampler",
    "Shared",
    "Table",
    "TaskTable",
    "Tool",
    "check_all",
    "load_recipe",
    "read_resolved",
    "registered_tables",
]

SHARED = ("run", "policy", "task", "sampler", "tools")
ENTRY_POINTS = "toolwright.tables"


class RecipeError(ValueError):
    """The recipe cannot be used; the message names the key and the mend."""


TableModel = TypeVar("TableModel", bound=Table)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A recipe that was read: the shared tables checked, the others raw."""

    path: Path
    shared: Shared
    raw: Mapping[str, Any]

    @property
    def folder(self) -> Path:
        """Folder that relative paths and ./file.py imports start from."""
        return self.path.parent

    @property
    def run_folder(self) -> Path:
        return self.resolve(self.shared.run.folder)

    def resolve(self, path: Path | str) -> Path:
        return (self.folder / path).resolve()

    def table(self, name: str, model: type[TableModel]) -> TableModel:
        """The process's own table, checked. RecipeError names the key that does not fit."""
        return _validate(model, self.raw.get(name, {}), self.path, prefix=name)

    def write_resolved(self, process: str, table: BaseModel) -> None:
        """Leaves what this process runs with as <run folder>/<process>.resolved.json."""
        self.run_folder.mkdir(parents=True, exist_ok=True)
        both = self.shared.model_dump_json(indent=1)
        own = table.model_dump_json(indent=1)
        path = json.dumps(str(self.path))
        text = f'{{"recipe": {path},\n"shared": {both},\n"{process}": {own}}}\n'
        (self.run_folder / f"{process}.resolved.json").write_text(text)


def read_resolved(file: Path) -> Recipe:
    """The recipe that `write_resolved` left; the process's own table is in `raw`. RecipeError."""
    try:
        found = json.loads(file.read_text())
        path, shared = Path(found["recipe"]), found["shared"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RecipeError(
            f"{file} does not say which recipe the run is of ({error}): name a run.folder that an "
            "engine has served, or the recipe"
        ) from error
    return Recipe(path=path, shared=_validate(Shared, shared, file, prefix=""), raw=found)


def load_recipe(path: Path, overrides: Iterable[str] = ()) -> Recipe:
    """Reads a recipe; `overrides` are dotted assignments such as "run.steps=10".

    RecipeError for a missing file, broken TOML, an unknown table or key, or a value out of range.
    """
    try:
        raw = tomllib.loads(path.read_text())
    except FileNotFoundError as error:
        raise RecipeError(f"no recipe at {path}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(f"{path} cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise RecipeError(f"{path} is not valid TOML: {error}") from error
    for text in overrides:
        try:
            assign(raw, text)
        except AssignmentError as error:
            raise RecipeError(f"override {error}") from error
    known = {*SHARED, *registered_tables()}
    for name in raw:
        if name not in known:
            raise RecipeError(
                f"{path}: unknown table [{name}]; known are {', '.join(sorted(known))}"
                f"{_hint(name, known)}"
            )
    shared = _validate(Shared, {k: v for k, v in raw.items() if k in SHARED}, path, prefix="")
    return Recipe(path=path.resolve(), shared=shared, raw=raw)


def registered_tables() -> dict[str, Any]:
    """Entry points by table name; installing a process's package registers its tables."""
    return {point.name: point for point in entry_points(group=ENTRY_POINTS)}


def check_all(recipe: Recipe) -> list[str]:
    """Validates every table of the recipe; returns names whose package cannot be imported."""
    absent = []
    for name, point in registered_tables().items():
        if name not in recipe.raw:
            continue
        try:
            model = point.load()
        except ImportError:
            absent.append(name)
        else:
            recipe.table(name, model)
    return absent


def _validate(
    model: type[TableModel], data: Mapping[str, Any], path: Path, prefix: str
) -> TableModel:
    try:
        return model.model_validate(data)
    except ValidationError as error:
        lines = []
        for item in error.errors():
            where = ".".join(str(part) for part in (prefix, *item["loc"]) if part != "")
            if item["type"] == "extra_forbidden":
                known = _table_at(model, item["loc"][:-1]).model_fields.keys()
                lines.append(f"{where}: unknown key{_hint(str(item['loc'][-1]), known)}")
            elif item["type"] == "missing":
                lines.append(f"{where}: missing")
            elif item["type"] == "tuple_type":
                lines.append(f"{where}: write a list, {_as_list(item['input'])}")
            else:
                says = item["msg"].removeprefix("Value error, ")
                lines.append(f"{where}: {says}" if where else says)
        raise RecipeError(f"{path}: " + "; ".join(lines)) from error


def _as_list(value: object) -> str:
    """A list of TOML with what was written without brackets."""
    return f"[{json.dumps(value)}]" if isinstance(value, str | int | float) else "[...]"


def _table_at(model: type[Table], path: Iterable[int | str]) -> type[Table]:
    """The table that holds what is at `path`; dicts and tuples of tables are looked through."""
    found: Any = model
    for part in path:
        if _is_table(found):
            field = found.model_fields.get(str(part))
            found = field.annotation if field else None
        else:
            found = next(filter(_is_table, get_args(found)), None)
    return found if _is_table(found) else model


def _is_table(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Table)


def _hint(name: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""
