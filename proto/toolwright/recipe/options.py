"""Options of a recipe's protocol, reward or group hook, checked by their types."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, ValidationError

from toolwright.recipe.diagnostics.faults import sentence
from toolwright.recipe.models.table import Table


class Options(Table):
    """Base of a class that a recipe names with options, or of the options alone.

    Each field is an option. Unknown names, values of another type and numbers that are not finite
    are refused with a sentence for each. Values are fixed afterwards.
    """

    model_config = ConfigDict(strict=True, allow_inf_nan=False, arbitrary_types_allowed=True)

    def __init__(self, **given: Any) -> None:
        """Raises ValueError for options that do not fit."""
        try:
            super().__init__(**given)
        except ValidationError as error:
            faults = (sentence(item, type(self), "", {}) for item in error.errors())
            raise ValueError("; ".join(faults)) from error


def needs(place: str, text: str, option: str) -> str:
    """A text, checked for a word in braces. Raises ValueError without it."""
    if place not in text:
        raise ValueError(f"{option} needs {place}")
    return text
