"""Names of keys and values in other programs and papers, from synonyms.toml, which is read once."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("synonyms.toml")


@cache
def _file() -> Mapping[str, Any]:
    return tomllib.loads(FILE.read_text(encoding="utf-8"))


def tables() -> frozenset[str]:
    """Names of the tables that have synonyms, as `Table.synonyms` gives them."""
    return frozenset(_file()["keys"]) | frozenset(_file()["values"])


def of_keys(table: str) -> Mapping[str, list[str]]:
    """Other names of the table's keys, by key."""
    found: Mapping[str, list[str]] = _file()["keys"].get(table, {})
    return found


def of_values(table: str) -> Mapping[str, Mapping[str, str]]:
    """Messages for values from elsewhere, by key and value. Values are in lower case with
    underscores."""
    found: Mapping[str, Mapping[str, str]] = _file()["values"].get(table, {})
    return found
