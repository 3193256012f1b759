"""Templates of prompts: words of a recipe with the names of what is put into them; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_PLACE = re.compile(r"\{(\w+)\}")


def filled(template: str, values: Mapping[str, str]) -> str:
    """The template with each `{name}` of `values` replaced, in one pass: what is put in is never
    looked at again, and a brace that names nothing stays as it is."""
    return _PLACE.sub(lambda found: values.get(found[1], found[0]), template)


def filled_texts(values: Mapping[str, Any], words: Mapping[str, str]) -> dict[str, Any]:
    """The values, each text among them filled with the words; other values stay."""
    return {
        key: filled(value, words) if isinstance(value, str) else value
        for key, value in values.items()
    }
