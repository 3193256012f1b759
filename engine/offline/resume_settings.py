"""The settings with which resumable work began, under names that users know. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import orjson

from engine.errors import StartupError

LONGEST = 200
"""Longest value that is kept whole, in characters; a longer one is cut and gets its hash."""


def setting_text(value: object) -> str:
    """A JSON-like value as text: equal for equal values only."""
    text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    if len(text) <= LONGEST:
        return text
    return f"{text[: LONGEST - 20]}... {hashlib.sha256(text.encode()).hexdigest()[:12]}"


def check_same_settings(
    output: Path, before: Mapping[str, str], now: Mapping[str, str], advice: str
) -> None:
    """Raises StartupError if the work in `output` began with other settings. advice: the fix."""
    for name in dict.fromkeys([*now, *before]):
        old, new = before.get(name), now.get(name)
        if old != new:
            raise StartupError(
                f"{output} was begun with {name} {'unknown' if old is None else repr(old)}, not "
                f"{'none' if new is None else repr(new)}: {advice}"
            )
