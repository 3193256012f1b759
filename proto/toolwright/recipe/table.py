"""The base of every table of a recipe, and what a model may say of its keys taken together.

Keys are not independent: of two, one says what the other would; bounds belong to a kind that
another key names; and some are read under certain settings alone. A model says so in the class
variables below. `toolwright.recipe.keys` applies them to a recipe and its layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

Case = Mapping[str, tuple[str, ...]]
"""Settings that hold together: each of the keys, dotted from the top of the recipe, has one of the
values, or where these are `ON` any that is not 0, false or empty."""

ON: tuple[str, ...] = ()


class Table(BaseModel):
    """Unknown keys are refused, values are fixed once read.

    either: pairs of keys of which one says what the other would. Where two layers say one each, the
    higher layer's counts, unless it is 0 or empty.
    belongs_to: key = the key that names its kind. What a layer says for one kind does not count
    where a higher layer names another.
    read_where: key, dotted from the top of the recipe = cases in which somebody reads it. A key
    that is not here is always read. For models of a whole table alone, such as [learner].
    other_keys: key = what else it is called elsewhere.
    other_words: key = what else people write there, in lower case with underscores, and what it is
    here.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    either: ClassVar[tuple[tuple[str, str], ...]] = ()
    belongs_to: ClassVar[Mapping[str, str]] = {}
    read_where: ClassVar[Mapping[str, tuple[Case, ...]]] = {}
    other_keys: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    other_words: ClassVar[Mapping[str, Mapping[str, str]]] = {}
