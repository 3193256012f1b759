"""Makes the calculator's untrained policy: a tiny random Qwen3 for the demonstrations' words.

    python -m toolwright.script policy.py --output untrained --seed 1

The tokenizer is trained on demonstrations only. Wordings kept for evaluation are unknown to it.
"""

from __future__ import annotations

from toolwright.model.tiny_policy import tags_of, tiny_policy

from .demonstrations import conversations

TAGS = tags_of("python", "result", "answer")
write, main = tiny_policy(conversations, tags=TAGS, sample=4000)
