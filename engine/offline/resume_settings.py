"""What a work that goes on in a later life was begun with: by names that people know, so that a
sentence can say what differs. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import orjson

LONGEST = 200
"""Characters of a value that are kept as they are; a longer one is cut and has its hash."""


def short(value: object) -> str:
    """A JSON-like value as text, the same for equal values and other for others."""
    text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    if len(text) <= LONGEST:
        return text
    return f"{text[: LONGEST - 20]}... {hashlib.sha256(text.encode()).hexdigest()[:12]}"


def what_differs(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """The first difference, "was begun with NAME 'a', not 'b'"; "" where there is none."""
    for name in dict.fromkeys([*now, *before]):
        old, new = before.get(name), now.get(name)
        if old != new:
            return (
                f"was begun with {name} {'unknown' if old is None else old!r}, "
                f"not {'none' if new is None else repr(new)}"
            )
    return ""
