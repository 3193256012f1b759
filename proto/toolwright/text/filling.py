"""Templates of prompts: words of a recipe with the names of what is put into them; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

_PLACE = re.compile(r"\{(\w+)\}")


def filled(template: str, values: Mapping[str, str]) -> str:
    """The template with each `{name}` of `values` replaced, in one pass: what is put in is never
    looked at again, and a brace that names nothing stays as it is."""
    return _PLACE.sub(lambda found: values.get(found[1], found[0]), template)
