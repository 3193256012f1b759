"""Templates of prompts: texts of a recipe with names in braces; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_PLACE = re.compile(r"\{(\w+)\}")


def filled(template: str, values: Mapping[str, str]) -> str:
    """The template with each `{name}` of `values` replaced, in one pass. A value is never searched
    for names, and a brace without a known name stays."""
    return _PLACE.sub(lambda found: values.get(found[1], found[0]), template)


def filled_texts(values: Mapping[str, Any], words: Mapping[str, str]) -> dict[str, Any]:
    """The values, each text among them filled with the words; other values stay."""
    return {
        key: filled(value, words) if isinstance(value, str) else value
        for key, value in values.items()
    }
