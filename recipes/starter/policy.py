"""Makes the policy to start from: a tiny random Qwen3 that knows the conversations' words.

    python -m toolwright.script policy.py --output untrained --seed 1

It is there so that everything runs on a laptop without a download. For a model of yours, name its
folder under policy.model in recipe.toml; then this file is not needed.
"""

from __future__ import annotations

from toolwright.model.tiny_policy import tags_of, tiny_policy

from .conversations import conversations

write, main = tiny_policy(conversations, tags=tags_of("look_up", "result", "answer"), sample=2000)
