"""Names of keys and values in other programs and papers.

They stand in synonyms.toml, which is read once. Words for names of the registries of
`toolwright.credit` stand there, beside the names.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from toolwright.credit.synonyms import VALUES

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
    registered, written = VALUES.get(table, {}), _file()["values"].get(table, {})
    return {
        key: {**registered.get(key, {}), **written.get(key, {})}
        for key in registered.keys() | written.keys()
    }
