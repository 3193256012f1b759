"""Remarks on a valid recipe: the settings in force, and settings that are probably mistakes.

Every registered table gives its own remarks. So `engine check` covers the learner without knowing
it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from toolwright.model import learner_memory
from toolwright.model.model_folder import ModelFolderError
from toolwright.process.machine_memory import gpu_bytes, rank_bytes
from toolwright.recipe import Recipe, tables_in_force
from toolwright.recipe.diagnostics.keys import Displaced, displaced, short, unread
from toolwright.recipe.layers import highest
from toolwright.recipe.models.table import ReadIf

WARNING = "warning: "
LEFT_OUT = "left out: "
"""Prefix of lines about parts that cannot be checked yet."""


def remarks(recipe: Recipe) -> list[str]:
    """The settings in force, a line a table, then warnings. Raises RecipeError for a wrong value.

    A table that the recipe leaves out counts with its defaults, where it has them. One whose
    package cannot be imported says nothing.
    """
    force, doubts = [], []
    for name, table in tables_in_force(recipe):
        model = type(table)
        if words := table.in_force(recipe.shared):
            force.append(f"[{name}] in force: {words}")
        if isinstance(table, learner_memory.Settings):
            force += _memory(recipe, name, table)
        gone = list(displaced(model, recipe.raw.get(name, {}), recipe.layers, (name,)))
        doubts += [*table.doubts(recipe.shared), *_given_way(recipe, gone, typed=True)]
        force += _given_way(recipe, gone, typed=False)
        lost = {".".join(one.path) for one in gone}
        rest = [rule for rule in model.rules if isinstance(rule, ReadIf) and rule.key not in lost]
        shared = {key: getattr(recipe.shared, key) for key in type(recipe.shared).model_fields}
        doubts += unread(rest, {**shared, name: table}, recipe.layers)
    return [*force, *(WARNING + line for line in doubts)]


def _memory(recipe: Recipe, name: str, table: learner_memory.Settings) -> Iterator[str]:
    """The memory of a training table's rank, and a warning if it does not fit this machine."""
    folder = recipe.resolve(recipe.shared.policy.model)
    try:
        decoder = learner_memory.read_decoder(folder)
    except ModelFolderError:
        return  # a folder that another check reports, or that the run makes first
    longest = table.longest_row(recipe.shared)
    clause, fix = learner_memory.report(
        decoder, table, longest, rank_bytes(), name=name, cuda=gpu_bytes()
    )
    yield f"[{name}] memory: {clause}"
    if fix is not None:
        yield f"{WARNING}[{name}] may run out of memory: {fix}"


def _given_way(recipe: Recipe, gone: Iterable[Displaced], *, typed: bool) -> Iterator[str]:
    """A sentence for each key of the user's own that a higher layer displaced: one that was typed,
    which may not be meant, or a file, which was written over the other on purpose."""
    layers = recipe.layers
    for one in gone:
        below, above = layers[highest(layers, one.path)], layers[highest(layers, one.by)]
        if not below.packaged and above.typed is typed:
            key, by = ".".join(one.path), ".".join(one.by)
            yield (
                f"{key} of {below.source} does nothing: {by} = {short(above.value(one.by))} of "
                f"{above.source} lies over it"
            )
