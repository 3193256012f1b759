"""Dotted assignments such as `--set run.steps=10`: into nested tables, and back."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any


class AssignmentError(ValueError):
    """The text cannot be applied; the message says why."""


def assign(tables: dict[str, Any], text: str) -> None:
    """Sets the key of `table.key=value`; a value that is not TOML is plain text.

    Raises AssignmentError if the text is not an assignment, or if its key goes through a value.
    """
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise AssignmentError(f"{text!r}: write it as table.key=value")
    parsed = _parsed(value)
    *path, last = key.split(".")
    table = tables
    for part in path:
        inner = table.setdefault(part, {})
        if not isinstance(inner, dict):
            raise AssignmentError(f"{text!r}: {part} is a value, not a table")
        table = inner
    table[last] = parsed


def assignments(tables: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """(dotted key, text) of each value, so that `assign` of `key=text` gives the value again.

    above: key of the tables, with a dot at its end.
    """
    for name, value in tables.items():
        if isinstance(value, Mapping):
            yield from assignments(value, f"{above}{name}.")
        else:
            plain = isinstance(value, str) and _parsed(value) == value
            yield f"{above}{name}", value if plain else _as_toml(value)


def _parsed(text: str) -> Any:
    """The value of a text in TOML, or the text itself."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _as_toml(value: Any) -> str:
    if isinstance(value, Mapping):
        inner = (f"{json.dumps(name)} = {_as_toml(one)}" for name, one in value.items())
        return f"{{{', '.join(inner)}}}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(map(_as_toml, value))}]"
    if isinstance(value, bool | str):
        return json.dumps(value)
    return str(value)
