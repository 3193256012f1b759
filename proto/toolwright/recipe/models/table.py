"""The base of every table of a recipe, and the rules that a model states about its keys.

Keys are not independent, so a model lists rules about them. `recipe/diagnostics/keys.py` applies
the rules to a recipe and its layers. Other names of keys and values are in synonyms.toml.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

Case = Mapping[str, tuple[str, ...]]
"""Settings that hold together, by key, dotted from the top of the recipe. Each key has one of the
values; with `ON`, any value but 0, false and empty."""

ON: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Either:
    """Two keys of the table of which one replaces the other.

    If two layers set one each, the key of the higher layer counts, unless it is 0 or empty.
    """

    first: str
    second: str


@dataclass(frozen=True, slots=True)
class OfKind:
    """A key of the table that depends on its key `kind`.

    A value from a layer with one kind does not count if a higher layer sets another kind.
    """

    key: str
    kind: str = "kind"


@dataclass(frozen=True, slots=True)
class ReadIf:
    """A key, dotted from the top of the recipe, that is read in one of the cases alone.

    Only models of a whole table, such as [learner], have these rules.
    """

    key: str
    cases: tuple[Case, ...]


Rule = Either | OfKind | ReadIf
"""A rule for whether a key counts. A key without a rule always counts."""


class Table(BaseModel):
    """Refuses unknown keys. Values are fixed once read."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rules: ClassVar[tuple[Rule, ...]] = ()
    synonyms: ClassVar[str] = ""
    """Name of the table's part in synonyms.toml; "" = keys and values have no other names."""
