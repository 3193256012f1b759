"""Makes the policy to start from: a tiny random Qwen3 that knows both worlds' words.

python -m toolwright.script policy.py --output untrained --seed 1
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from tasks.worlds.demonstrations import Messages
from toolwright.imports import load_file
from toolwright.model.tiny_policy import tags_of, tiny_policy

RECIPES = Path(__file__).resolve().parents[2]
OF_EACH = 3000  # conversations that the tokenizer is made of


def both(seed: int) -> Iterator[Messages]:
    for file in ("calculator/demonstrations.py", "starter/conversations.py"):
        yield from islice(load_file(RECIPES / file).conversations(seed), OF_EACH)


TAGS = tags_of("python", "look_up", "result", "answer")
write, main = tiny_policy(both, tags=TAGS, sample=2 * OF_EACH)
