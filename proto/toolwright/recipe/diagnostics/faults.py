"""One sentence for each error in a recipe: the key, what is wrong, and the fix.

An unknown key may resemble no key of its table. It may then belong to another table, or be another
program's name of a key. An unknown value may be another program's word. `synonyms` has both.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from toolwright.recipe.diagnostics.keys import short, table_of
from toolwright.recipe.diagnostics.synonyms import of_keys, of_values
from toolwright.recipe.layers import EXTENDS
from toolwright.recipe.models.table import Table

Models = Mapping[str, type[Table]]
"""Models of a recipe's tables by name; the shared tables are under ""."""

MOST_HOMES = 3
SLIP = 0.85
"""Least similarity of a typing error, even if another table has that name."""
CLOSE_KEY = 0.65
"""Least similarity of two names for a suggestion."""
CLOSE_VALUE = 0.5
"""Least similarity of a value and a choice for a suggestion: choices are short and few."""
NO_TABLE = ("model_type", "model_attributes_type", "dict_type")

WANTED = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "string": "a text in quotation marks",
}
"""What to write, by the first word of pydantic's error type, such as int_parsing or int_type."""
OTHER_KIND = ("type", "parsing", "parsing_size", "from_float")
BOUNDS = ("greater_than", "greater_than_equal", "less_than", "less_than_equal")


def sentence(item: ErrorDetails, model: type[Table], prefix: str, models: Models) -> str:
    """The message of one of pydantic's errors. prefix: name of the table; "" = a shared table."""
    path = path_of(item, prefix)
    where = ".".join(path)
    table, field, here = _place(model, item["loc"])
    kind, value = item["type"], item["input"]
    if kind == "extra_forbidden":
        return f"{where}: unknown key{_hint(path, table.model_fields, models)}"
    if kind == "missing":
        return f"{where}: missing"
    if kind == "tuple_type":
        return f"{where}: {_as_list(where, value, field)}"
    if kind in NO_TABLE and here is not None:
        return f"{where}: {_as_table(where, value, here, field)}"
    if kind == "dict_type":
        if field is not None and _of_several(field.annotation):
            return f"{where}: write a table for each: [{where}.NAME]"
        return f"{where}: write a table: [{where}]"
    if kind == "path_type":
        return f"{where}: write a path in quotation marks"
    wanted = WANTED.get(kind.partition("_")[0])
    if wanted is not None and kind.partition("_")[2] in OTHER_KIND:
        return f"{where}: write {wanted}, not {short(value)}"
    says = item["msg"].removeprefix("Value error, ")
    if kind == "literal_error":
        meant = _meant(table, path[-1], value, _choices(field.annotation if field else None))
        says = f"{says}, not {short(value)}{meant}"
    elif kind in BOUNDS:
        says = f"{says}, not {short(value)}"
    return f"{where}: {says}" if where else says


def path_of(item: ErrorDetails, prefix: str) -> tuple[str, ...]:
    """The path of the key of one of pydantic's errors."""
    return tuple(str(part) for part in (prefix, *item["loc"]) if part != "")


def unknown_table(name: str, models: Models, known: Iterable[str]) -> str:
    """The message for an unknown table. known: names of the known tables."""
    names = sorted(known)
    hint = _hint((name,), names, models)
    return f"unknown table [{name}]; known are {', '.join(names)}{hint}"


def _hint(path: tuple[str, ...], known: Iterable[str], models: Models) -> str:
    """Where else the key belongs, or a similar key of its table; "" without a suggestion."""
    *_, name = path
    if name == EXTENDS:
        return " (stands at the top, above the first table)"
    slips = get_close_matches(name, list(known), n=1, cutoff=SLIP)
    if slips:
        return f" (did you mean {slips[0]!r}?)"
    homes = [home for home, names in _homes(models) if name == home[-1] or name in names]
    beside = [home for home in homes if home[:-1] == path[:-1]]
    homes = beside or [home for home in homes if home[0] == path[0]] or homes
    if (name,) in homes:
        return f" (is a table of its own: [{name}])"
    belongs = [".".join(home[:-1]) for home in homes if home[-1] == name]
    called = [".".join(home) for home in homes if home[-1] != name]
    hints = [
        f"{what} {' or '.join(them)}{end}"
        for what, them, end in (("belongs to", belongs, ""), ("is", called, " here"))
        if 0 < len(them) <= MOST_HOMES
    ]
    if hints:
        return f" ({'; or '.join(hints)})"
    near = get_close_matches(name, list(known), n=1, cutoff=CLOSE_KEY)
    return f" (did you mean {near[0]!r}?)" if near else ""


def _homes(models: Models) -> Iterator[tuple[tuple[str, ...], Collection[str]]]:
    """The path and the other names of every key of every table."""

    def below(model: type[Table], path: tuple[str, ...]) -> Iterator[tuple[Any, Any]]:
        others = of_keys(model.synonyms)
        for name, field in model.model_fields.items():
            yield (*path, name), others.get(name, ())
            inner = table_of(field.annotation)
            if inner is not None:
                yield from below(inner, (*path, name))
            elif (several := _of_several(field.annotation)) is not None:
                yield from below(several, (*path, name, "NAME"))

    for name, model in models.items():
        path = (name,) if name else ()
        if name:
            yield path, ()
        yield from below(model, path)


def _meant(table: type[Table], key: str, value: object, choices: list[str]) -> str:
    """A suggestion for a value that is not one of the choices, or ""."""
    if not isinstance(value, str):
        return ""
    word = value.strip().lower()
    meaning = of_values(table.synonyms).get(key, {}).get(word.replace("-", "_"))
    if meaning is not None:
        return f": {meaning}"
    near = get_close_matches(word, choices, n=1, cutoff=CLOSE_VALUE)
    return f" (did you mean {near[0]!r}?)" if near else ""


def _as_list(where: str, value: object, field: FieldInfo | None) -> str:
    """How to write the list, for a value without brackets."""
    if isinstance(value, Mapping) and field is not None and _of_several(field.annotation):
        return f"there may be several: write [[{where}]], with two brackets"
    written = json.dumps(value) if isinstance(value, str | int | float) else "..."
    return f"write a list, [{written}]"


def _as_table(where: str, value: object, inner: type[Table], field: FieldInfo | None) -> str:
    """How to write the table, for a plain value in its place."""
    if value is False and field is not None and field.default is None:
        return "leave the table out instead"
    above, _, last = where.rpartition(".")
    head = f"[[{above}]]" if last.isdigit() else f"[{where}]"
    for name, own in inner.model_fields.items():
        if table_of(own.annotation) is None and _takes(own, value):
            return f"write a table: {head} {name} = {json.dumps(value)}"
        if own.is_required():
            break
    name, own = next(iter(inner.model_fields.items()))
    if table_of(own.annotation) is not None:
        return f"write a table: {head}"
    default = own.get_default(call_default_factory=True)
    shown = json.dumps(default) if default and isinstance(default, str | int | float) else "..."
    return f"write a table: {head} {name} = {shown}"


def _takes(field: FieldInfo, value: object) -> bool:
    """Whether the key accepts the value without a conversion from text."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return False
    kind: Any = field.annotation
    try:
        taken = TypeAdapter(kind).validate_python(value)
    except ValidationError:
        return False
    return isinstance(taken, str | Path) == isinstance(value, str)


def _place(
    model: type[Table], path: Iterable[int | str]
) -> tuple[type[Table], FieldInfo | None, type[Table] | None]:
    """(the table of the key at `path`, the field of the key, the table that the key holds).

    The field is None if the table has no such key.
    """
    holder, field = model, None
    here: type[Table] | None = model
    several: type[Table] | None = None
    for part in path:
        if several is not None:
            here, several, field = several, None, None
            continue
        holder = here or holder
        field = holder.model_fields.get(str(part))
        here = table_of(field.annotation) if field is not None else None
        several = _of_several(field.annotation) if field is not None else None
    return holder, field, here


def _of_several(annotation: Any) -> type[Table] | None:
    """The table that a list of tables, or a table of tables, holds."""
    if get_origin(annotation) not in (dict, tuple):
        return None
    return next(filter(None, map(table_of, get_args(annotation))), None)


def _choices(annotation: Any) -> list[str]:
    """The words that a key accepts."""
    inner = [word for part in get_args(annotation) for word in _choices(part)]
    return inner or [annotation] if isinstance(annotation, str) else inner
