"""Makes the market's untrained policy: a tiny random Qwen3 for the demonstrations' words.

    python -m toolwright.script market/policy.py --output untrained --seed 1

The fixed parts of plans, steps and calls are one token each. To write JSON around a Python function
letter by letter is beyond 0.85 million parameters; which tool to take or to make, and with which
rate, is what is learnt.
"""

from __future__ import annotations

import json
from pathlib import Path

from toolwright.model.tiny_policy import tags_of, tiny_policy

from .demonstrations import conversations
from .task import GOODS

WORDS = (*json.loads(Path(__file__).with_name("tokens.json").read_text("utf-8")), *GOODS)

TAGS = tags_of("tool_call", "answer")
write, main = tiny_policy(conversations, tags=TAGS, words=lambda: WORDS, sample=2000)
