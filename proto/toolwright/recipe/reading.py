"""The recipe: one TOML file that every process reads.

Owns the names of the tables. The models of the shared tables are in `models.shared_tables`. Every
other table belongs to one process, which registers its model under the entry-point group
`toolwright.tables`. A process checks the shared tables and its own, and refuses unknown keys there.
Every process refuses a table that is not registered. Paths are relative to the recipe's folder.
`layers` reads the file and the files that it extends.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from toolwright.process.run_folder import make_run_folder
from toolwright.recipe.assignments import AssignmentError, assign
from toolwright.recipe.diagnostics.faults import path_of, sentence, unknown_table
from toolwright.recipe.diagnostics.keys import what_counts
from toolwright.recipe.epochs import EpochsFault, fault_of, steps_of
from toolwright.recipe.layers import EXTENDS, Layer, LayerError, highest, read_layers
from toolwright.recipe.models.process_table import ProcessTable
from toolwright.recipe.models.shared_tables import Shared
from toolwright.recipe.models.table import Table
from toolwright.recipe.references import ReferenceFault, replaced

SHARED = ("run", "policy", "task", "tasks", "sampler", "tools")
ENTRY_POINTS = "toolwright.tables"


class RecipeError(ValueError):
    """The recipe cannot be used. The message names the key and the fix."""


TableModel = TypeVar("TableModel", bound=Table)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A recipe that was read: the shared tables checked, the others raw."""

    path: Path
    shared: Shared
    raw: Mapping[str, Any]
    fragments: tuple[Path, ...] = ()
    layers: tuple[Layer, ...] = ()
    """Its files from the lowest on, then each override."""

    @property
    def folder(self) -> Path:
        """Folder that relative paths and ./file.py imports start from."""
        return self.path.parent

    @property
    def run_folder(self) -> Path:
        return self.resolve(self.shared.run.folder)

    def resolve(self, path: Path | str) -> Path:
        """A path of the recipe, absolute. Raises RecipeError if links lead in a circle."""
        try:
            return (self.folder / path).resolve()
        except (OSError, RuntimeError) as error:
            raise RecipeError(
                f"{self.folder / path} leads nowhere: its symbolic links go in a circle"
            ) from error

    @property
    def steps(self) -> int:
        """run.steps, or what run.epochs gives; then it reads the files of rows.

        Raises RecipeError if one cannot be read.
        """
        if self.shared.run.steps is not None:
            return self.shared.run.steps
        try:
            return steps_of(self.shared, self.resolve)
        except EpochsFault as fault:
            raise RecipeError(f"{self.path}: {fault}") from fault

    def counted(self) -> Recipe:
        """The recipe with its `steps` as run.steps, whatever becomes of the files later."""
        run = self.shared.run.model_copy(update={"steps": self.steps})
        return replace(self, shared=self.shared.model_copy(update={"run": run}))

    def of_task(self, name: str) -> Recipe:
        """The recipe with this task alone; "" = it has one task. Raises KeyError."""
        return replace(self, shared=self.shared.of_task(name))

    def make_run_folder(self) -> Path:
        """Makes and returns the run folder. Raises RecipeError if it cannot be made or written."""
        if fault := make_run_folder(self.run_folder):
            raise RecipeError(f"{self.path}: {fault}")
        return self.run_folder

    def table(self, name: str, model: type[TableModel]) -> TableModel:
        """The process's own table, checked, also beside the shared ones. Raises RecipeError, which
        names the wrong key."""
        given = self.raw.get(name, {})
        if isinstance(given, Mapping):
            given = what_counts(model, given, self.layers, (name,))
        made = _validate(model, given, self.path, name, self.layers)
        if isinstance(made, ProcessTable) and (why := made.conflict(self.shared)):
            raise RecipeError(f"{self.path}: {why}")
        return made

    def write_resolved(self, process: str, table: BaseModel) -> None:
        """Writes the settings of this process to <run folder>/<process>.resolved.json."""
        self.make_run_folder()
        text = self.resolved(process, table)
        (self.run_folder / f"{process}.resolved.json").write_text(text, encoding="utf-8")

    def resolved(self, process: str, table: BaseModel) -> str:
        """The settings of a process as JSON."""
        both = self.counted().shared.model_dump_json(indent=1)
        own = table.model_dump_json(indent=1)
        path, fragments = json.dumps(str(self.path)), json.dumps([*map(str, self.fragments)])
        head = f'{{"recipe": {path},\n"{EXTENDS}": {fragments},\n'
        return f'{head}"shared": {both},\n"{process}": {own}}}\n'


def read_resolved(file: Path) -> Recipe:
    """The recipe that `write_resolved` wrote; the process's own table is in `raw`. Raises
    RecipeError."""
    try:
        return recipe_from_resolved(file.read_text(encoding="utf-8"), file)
    except (OSError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, RecipeError):
            raise
        raise RecipeError(
            f"{file} does not say which recipe the run is of ({error}): name a run.folder that an "
            "engine has served, or the recipe"
        ) from error


def recipe_from_resolved(text: str, where: Path) -> Recipe:
    """The recipe of `Recipe.resolved`. where: names the text in errors. Raises ValueError, KeyError
    or TypeError for another text, RecipeError for wrong settings."""
    found = json.loads(text)
    path, shared = Path(found["recipe"]), found["shared"]
    return Recipe(path=path, shared=_validate(Shared, shared, where), raw=found)


def load_recipe(path: Path, overrides: Iterable[str] = ()) -> Recipe:
    """Reads a recipe with the files that it extends. overrides: dotted assignments that come last,
    such as "run.steps=10".

    Raises RecipeError for a missing file, broken TOML, an unknown table or key, or a value out of
    range.
    """
    try:
        layers = read_layers(path)
    except LayerError as error:
        raise RecipeError(str(error)) from error
    raw: Mapping[str, Any] = layers.tables
    laid = list(layers.laid)
    for text in overrides:
        own: dict[str, Any] = {}
        try:
            assign(layers.tables, text)
            assign(own, text)
        except AssignmentError as error:
            raise RecipeError(f"override {error}") from error
        laid.append(Layer(source=f"--set {text}", tables=own, typed=True))
    if layers.laid[-1].packaged:
        raise RecipeError(
            f"{path} is a preset, and only a part of a recipe: write a recipe of your own that "
            f'begins with extends = ["presets/{path.name}"]'
        )
    try:
        raw = replaced(raw)
    except ReferenceFault as error:
        raise RecipeError(f"{path}: {error}") from error
    known = {*SHARED, *registered_tables()}
    for name in raw:
        if name not in known:
            where = _where(path, laid, [(name,)])
            raise RecipeError(f"{where}: {unknown_table(name, _models(), known)}")
    raw = _with_one_length(raw, path, laid)
    shared = _validate(Shared, _shared(raw), path, layers=laid)
    if shared.run.steps is None and (fault := fault_of(shared)):
        raise RecipeError(f"{path}: {fault}")
    return Recipe(
        path=path.resolve(),
        shared=shared,
        raw=raw,
        fragments=layers.fragments,
        layers=tuple(laid),
    )


def _shared(raw: Mapping[str, Any]) -> dict[str, Any]:
    return {name: table for name, table in raw.items() if name in SHARED}


def _with_one_length(
    raw: Mapping[str, Any], path: Path, laid: Sequence[Layer]
) -> Mapping[str, Any]:
    """The tables with the one of run.steps and run.epochs that counts."""
    run = raw.get("run")
    if not isinstance(run, Mapping) or not {"steps", "epochs"} <= run.keys():
        return raw
    steps, epochs = (("run", "steps"), ("run", "epochs"))
    above = highest(laid, steps) - highest(laid, epochs)
    if above == 0:
        raise RecipeError(
            f"{_where(path, laid, [steps, epochs])}: run.steps = {run['steps']} and run.epochs "
            f"= {run['epochs']}: give one of them"
        )
    lower = "epochs" if above > 0 else "steps"
    return {**raw, "run": {key: value for key, value in run.items() if key != lower}}


@cache
def registered_tables() -> Mapping[str, Any]:
    """Entry points by table name. Installing a process's package registers its tables. The search
    reads the metadata of every installed package, so it runs once a process."""
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


def tables_in_force(recipe: Recipe) -> Iterator[tuple[str, ProcessTable]]:
    """(name, table) of each registered table that the recipe has, or that needs no key. A table is
    left out if its package cannot be imported. Raises RecipeError for a wrong value."""
    for name, point in registered_tables().items():
        try:
            model: type[ProcessTable] = point.load()
        except ImportError:
            continue
        needs = any(field.is_required() for field in model.model_fields.values())
        if name in recipe.raw or not needs:
            yield name, recipe.table(name, model)


def _where(path: Path, layers: Sequence[Layer], keys: Iterable[tuple[str, ...]]) -> str:
    """The recipe, and the fragments and overrides that set one of the keys."""
    files = [layer for layer in layers if not layer.typed]
    others = [*files[:-1], *(layer for layer in layers if layer.typed)]
    names = {"--set" if o.typed else o.source: None for k in keys for o in others if o.says(k)}
    return f"{path} (with {', '.join(names)})" if names else str(path)


def _validate(
    model: type[TableModel],
    data: Mapping[str, Any],
    path: Path,
    prefix: str = "",
    layers: Sequence[Layer] = (),
) -> TableModel:
    try:
        return model.model_validate(data)
    except ValidationError as error:
        models = _models()
        lines = [sentence(item, model, prefix, models) for item in error.errors()]
        where = _where(path, layers, (path_of(item, prefix) for item in error.errors()))
        raise RecipeError(f"{where}: " + "; ".join(lines)) from error


def _models() -> dict[str, type[Table]]:
    """Every model whose package can be imported; the shared tables are under ""."""
    out: dict[str, type[Table]] = {"": Shared}
    for name, point in registered_tables().items():
        with suppress(ImportError):
            out[name] = point.load()
    return out
