"""An entry of a registry: the formula of a name, and its names in other trainers.

The registries are `estimators.ESTIMATORS`, `losses.LOSSES`, `losses.AGGREGATIONS`,
`losses.KL_ESTIMATORS` and `corrections.CORRECTIONS`. Recipes, their checks, warnings and the viewer
read them. The learner has the tensor half under the same names; a test holds that no name lacks it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One name that a recipe may choose."""

    formula: str
    """The formula in words, for readers of a run."""
    reads: tuple[str, ...] = ()
    """Keys of the recipe's table that only some names read, and this one does."""
    also: tuple[str, ...] = ()
    """Names in other trainers, in lower case with underscores."""

    @property
    def keys(self) -> tuple[str, ...]:
        """All keys that this name reads and some others do not."""
        return self.reads


def other_words(entries: Mapping[str, Entry]) -> dict[str, str]:
    """Names in other trainers, each with a hint that gives the name here."""
    return {
        word: f"this is {name!r} here" for name, entry in entries.items() for word in entry.also
    }


def names_reading(key: str, entries: Mapping[str, Entry]) -> tuple[str, ...]:
    """Names of the entries that read a key."""
    return tuple(name for name, entry in entries.items() if key in entry.keys)
