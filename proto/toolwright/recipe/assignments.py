"""Dotted assignments of a command line, such as `--set run.steps=10`, into nested tables."""

from __future__ import annotations

import tomllib
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
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value
    *path, last = key.split(".")
    table = tables
    for part in path:
        inner = table.setdefault(part, {})
        if not isinstance(inner, dict):
            raise AssignmentError(f"{text!r}: {part} is a value, not a table")
        table = inner
    table[last] = parsed
