"""Makes the demonstration's untrained policy: a tiny random Qwen3 for the demonstrations' words.

    python -m toolwright.script world/policy.py --output untrained --seed 1

Pieces of names, of tools and of JSON are one token each: which tool to call, with what, and what an
observation says is what is learnt, and not how JSON is spelt.
"""

from __future__ import annotations

import json
from pathlib import Path

from tasks.worlds.names import pieces
from tasks.worlds.questions import SHAPE
from toolwright.model.tiny_policy import tags_of, tiny_policy

from .demonstrations import traces
from .roles import pieces_told

FIXED = json.loads(Path(__file__).with_name("tokens.json").read_text("utf-8"))
"""Texts of prompts, calls, observations and the pre-check's errors."""


def words() -> list[str]:
    """Texts that are one token each."""
    asked = [
        part for one in SHAPE.told for text in SHAPE.wordings_of(one) for part in text.split("{x}")
    ]
    every = (*pieces(), *asked, *pieces_told(), *FIXED)
    return list(dict.fromkeys(one for one in every if len(one) > 1 or one == "("))


TAGS = tags_of("think", "tool_call", "answer")
write, main = tiny_policy(
    lambda seed: (one.messages for one in traces(seed)), tags=TAGS, words=words, sample=1000
)
