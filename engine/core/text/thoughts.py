"""The thoughts of a chat template: their tags, and whether an action begins inside one.

A template has thoughts if its source has their tags. Tags in a recipe's own prompt open no thought:
the recipe decides their meaning.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.types import Codec
from toolwright.reading.action_ends import Tags
from toolwright.reading.thoughts import KNOWN

_TAIL = 16
"""Tokens before an action that are searched: a tag and white space after it."""


def thought_of(template: str) -> Tags | None:
    """Tags of the thoughts in a template's source; None without thoughts."""
    return next((tags for tags in KNOWN if tags.close in template), None)


def begins_inside(codec: Codec, before: Sequence[int]) -> bool:
    """Whether the ids `before` leave a thought open: the generation prompt opened one."""
    if codec.thought is None:
        return False
    return codec.decode(before[-_TAIL:]).rstrip().endswith(codec.thought.open)
