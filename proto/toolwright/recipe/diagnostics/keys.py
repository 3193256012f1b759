"""Keys of a recipe without effect: a higher layer replaces them, or no component reads them.

Applies the rules of the models (`table`) to the layers of a recipe. Pure; knows no table by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import Any, Union, get_args, get_origin

from toolwright.recipe.layers import Layer, highest
from toolwright.recipe.models.table import ON, Case, Either, OfKind, ReadIf, Table

KeyPath = tuple[str, ...]
LONGEST_VALUE = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Displaced:
    """The key at `path` does not count, since a higher layer sets the key at `by`."""

    path: KeyPath
    by: KeyPath


def displaced(
    model: type[Table], given: Mapping[str, Any], layers: Sequence[Layer], path: KeyPath
) -> Iterator[Displaced]:
    """Displaced keys of the table at `path` and of the tables inside. given: keys of that table."""
    for rule in model.rules:
        match rule:
            case Either(first, second) if first in given and second in given:
                places = {key: highest(layers, (*path, key)) for key in (first, second)}
                low, high = sorted((first, second), key=places.__getitem__)
                if places[low] < places[high] and given[high]:
                    yield Displaced(path=(*path, low), by=(*path, high))
            case OfKind(key, kind) if key in given and kind in given:
                place, above = highest(layers, (*path, key)), highest(layers, (*path, kind))
                before = _kind(model, layers[: place + 1], (*path, kind))
                if place < above and before != given[kind]:
                    yield Displaced(path=(*path, key), by=(*path, kind))
    for name, field in model.model_fields.items():
        inner = table_of(field.annotation)
        if inner is not None and isinstance(given.get(name), Mapping):
            yield from displaced(inner, given[name], layers, (*path, name))


def what_counts(
    model: type[Table], given: Mapping[str, Any], layers: Sequence[Layer], path: KeyPath
) -> dict[str, Any]:
    """A copy of `given` without its displaced keys."""
    out = dict(given)
    for one in displaced(model, given, layers, path):
        out = _without(out, one.path[len(path) :])
    return out


def table_of(annotation: Any) -> type[Table] | None:
    """The table that a key of this type holds, `Table | None` included."""
    either = get_origin(annotation) in (Union, UnionType)
    kinds = get_args(annotation) if either else (annotation,)
    return next((k for k in kinds if isinstance(k, type) and issubclass(k, Table)), None)


def unread(
    rules: Iterable[ReadIf], tables: Mapping[str, Any], layers: Sequence[Layer]
) -> Iterator[str]:
    """A sentence for each key that the user set and that has no effect.

    tables: the checked tables by their names. A key that a preset alone sets is never reported: a
    user chooses a preset as a whole.
    """
    for rule in rules:
        key, read = rule.key, rule.cases
        place = highest(layers, key.split("."))
        if place < 0 or layers[place].packaged or any(_holds(case, tables) for case in read):
            continue
        said = layers[place].value(key.split("."))
        where = "; or ".join(" and ".join(_wanted(k, case[k]) for k in case) for case in read)
        now = {k: _value(tables, k) for case in read for k in case if not _fits(case, k, tables)}
        here = ", ".join(
            f"{k} is not set" if value is None else f"{k} = {short(value)}"
            for k, value in now.items()
        )
        yield f"{key} = {short(said)} does nothing: it is read where {where}. Here {here}"


def _kind(model: type[Table], layers: Sequence[Layer], path: KeyPath) -> Any:
    """The kind that these layers set, else its default."""
    place = highest(layers, path)
    return layers[place].value(path) if place >= 0 else model.model_fields[path[-1]].default


def _without(given: Mapping[str, Any], path: KeyPath) -> dict[str, Any]:
    key, *rest = path
    if not rest:
        return {name: value for name, value in given.items() if name != key}
    return {**given, key: _without(given[key], tuple(rest))}


def _holds(case: Case, tables: Mapping[str, Any]) -> bool:
    return all(_fits(case, key, tables) for key in case)


def _fits(case: Case, key: str, tables: Mapping[str, Any]) -> bool:
    value = _value(tables, key)
    return bool(value) if case[key] == ON else value in case[key]


def _value(tables: Mapping[str, Any], key: str) -> Any:
    name, *path = key.split(".")
    found = tables[name]
    for part in path:
        found = getattr(found, part)
    return found


def _wanted(key: str, values: Iterable[str]) -> str:
    *most, last = map(repr, values) if values else ["set"]
    return f"{key} is {', '.join(most)} or {last}" if most else f"{key} is {last}"


def short(value: Any) -> str:
    """The value as a message shows it, cut at LONGEST_VALUE characters."""
    text = repr(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]} ..."
