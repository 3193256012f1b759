"""The thoughts of a chat template: which tags they have, and whether an action begins inside one.

A template has thoughts if its source names their tags. The tags of a recipe's own prompt open no
thought: the recipe says what they mean.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.types import Codec
from toolwright.reading.action_ends import Tags
from toolwright.reading.thoughts import KNOWN

_TAIL = 16
"""Tokens before an action that are looked at: a tag and the white space behind it."""


def thought_of(template: str) -> Tags | None:
    """Tags of the thoughts that a template's source knows."""
    return next((tags for tags in KNOWN if tags.close in template), None)


def begins_inside(codec: Codec, before: Sequence[int]) -> bool:
    """Whether what follows the ids `before` is a thought: the generation prompt opened one."""
    if codec.thought is None:
        return False
    return codec.decode(before[-_TAIL:]).rstrip().endswith(codec.thought.open)
