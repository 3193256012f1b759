"""References between a recipe's values: `${memory.address}` in a text is that key's value. Pure.

They are replaced after all layers and overrides are merged, so the value of the highest layer
counts. A reference stands in a text, also in lists and nested tables. It names a key of a table by
its dotted path. A value that is not a text is written as in TOML. `$${` stays `${`.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Iterator, Mapping
from datetime import date, time
from typing import Any

LONGEST = 100_000
"""Most characters that references put into a text: texts that double grow without bound."""
DEEPEST = 100
"""Longest chain of references."""

_REFERENCE = re.compile(r"\$(\$?)\{([^{}]*)\}")


class ReferenceFault(ValueError):
    """A reference without a value. The message names its place and the fix."""


def replaced(tables: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of the tables with every reference replaced. Raises ReferenceFault."""
    return _Replacing(tables).tables()


class _Replacing:
    def __init__(self, tables: Mapping[str, Any]) -> None:
        self._tables = tables
        self._known: dict[str, str] = {}

    def tables(self) -> dict[str, Any]:
        return {name: self._value(value, name, ()) for name, value in self._tables.items()}

    def _value(self, value: Any, key: str, above: tuple[str, ...]) -> Any:
        if isinstance(value, str):
            return self._text(value, key, above)
        if isinstance(value, Mapping):
            return {name: self._value(one, f"{key}.{name}", above) for name, one in value.items()}
        if isinstance(value, list):
            return [self._value(one, key, above) for one in value]
        return value

    def _text(self, text: str, key: str, above: tuple[str, ...]) -> str:
        if "${" not in text:
            return text

        left = LONGEST

        def one(found: re.Match[str]) -> str:
            nonlocal left
            put = f"${{{found[2]}}}" if found[1] else self._referred(found[2], key, above)
            left -= len(put)
            if left < 0:
                raise ReferenceFault(
                    f"{key}: its references make more than {LONGEST} characters of it"
                )
            return put

        return _REFERENCE.sub(one, text)

    def _referred(self, path: str, key: str, above: tuple[str, ...]) -> str:
        if len(above) > DEEPEST:
            raise ReferenceFault(f"{key}: more than {DEEPEST} references lead to each other")
        if path in above:
            circle = " -> ".join((*above[above.index(path) :], path))
            raise ReferenceFault(f"{key}: ${{{path}}} leads in a circle, {circle}: write the value")
        if path not in self._known:
            value = self._found(path, key)
            if isinstance(value, str):
                self._known[path] = self._text(value, path, (*above, path))
            else:
                self._known[path] = _spelled(value, path, key)
        return self._known[path]

    def _found(self, path: str, key: str) -> Any:
        found: Any = self._tables
        for part in path.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
        if found is None:
            near = difflib.get_close_matches(path, list(_keys(self._tables, "")), n=1)
            hint = f"did you mean ${{{near[0]}}}? " if near else ""
            raise ReferenceFault(
                f"{key}: ${{{path}}} refers to a key that this recipe does not set: {hint}"
                "set it, or write $${ for the characters themselves"
            )
        if isinstance(found, (Mapping, list)):
            kind = "table" if isinstance(found, Mapping) else "list"
            raise ReferenceFault(f"{key}: ${{{path}}} is a {kind}: refer to a single value")
        return found


def _spelled(value: Any, path: str, key: str) -> str:
    """As TOML spells it."""
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    raise ReferenceFault(f"{key}: ${{{path}}} is a {type(value).__name__}: refer to a text")


def _keys(tables: Mapping[str, Any], prefix: str) -> Iterator[str]:
    for name, value in tables.items():
        if isinstance(value, Mapping):
            yield from _keys(value, f"{prefix}{name}.")
        elif not isinstance(value, list):
            yield f"{prefix}{name}"
