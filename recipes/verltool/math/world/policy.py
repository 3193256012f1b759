"""Makes the freight yard's untrained policy: a tiny random Qwen3 for the demonstrations' words.

    python -m toolwright.script world/policy.py --output untrained --seed 1

The fixed parts of sentences and programs are one token each: which operator a sentence asks for is
what is learnt, and not how words are spelt.
"""

from __future__ import annotations

import re

from tasks.worlds.questions import OPERATIONS
from toolwright.model.tiny_policy import single_tokens, tiny_policy

from .demonstrations import conversations
from .task import EVENTS, GOODS, LOADS

PROGRAM = ("```python\nx = ", "\nprint(x", ")\n```\n```output", "\n```\n", "\\boxed{")
"""Fixed parts of an action and of what stands around its output."""
_PLACE = re.compile(r"\{\w+\}")


def words() -> list[str]:
    """Texts that are one token each."""
    said = (text for by_sign in (LOADS, EVENTS) for texts in by_sign.values() for text in texts)
    parts = [part for text in said for part in _PLACE.split(text)]
    return single_tokens((*parts, *GOODS, *OPERATIONS, *PROGRAM))


write, main = tiny_policy(conversations, tags=(), words=words, sample=1000)
