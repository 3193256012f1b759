"""Whether an action begins inside a thought of the chat template.

A template has thoughts if its source has their tags. Tags in a recipe's own prompt open no thought:
the recipe decides their meaning.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.types import Codec

_TAIL = 16
"""Tokens before an action that are searched: a tag and white space after it."""


def begins_inside(codec: Codec, before: Sequence[int]) -> bool:
    """Whether the ids `before` leave a thought open: the generation prompt opened one."""
    if codec.thought is None:
        return False
    return codec.decode(before[-_TAIL:]).rstrip().endswith(codec.thought.open)
