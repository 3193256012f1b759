"""Makes the freight yard's untrained policy: a tiny random Qwen3 for the demonstrations' words.

    python world/policy.py --output untrained --seed 1

The fixed parts of sentences and programs are one token each: which operator a sentence asks for is
what is learnt, and not how words are spelt.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from demonstrations import Messages, conversations
from task import EVENTS, GOODS, LOADS, OPERATIONS

from toolwright.model.tiny_policy import policy_command, write_policy

PROGRAM = ("```python\nx = ", "\nprint(x", ")\n```\n```output", "\n```\n", "\\boxed{")
"""Fixed parts of an action and of what stands around its output."""
TOKENIZER_SAMPLE = 1000  # conversations
_PLACE = re.compile(r"\{\w+\}")


def words() -> list[str]:
    """Texts that are one token each."""
    sentences = [
        text for by_sign in (LOADS, EVENTS) for texts in by_sign.values() for text in texts
    ]
    parts = [part for text in sentences for part in _PLACE.split(text)]
    fixed = (*parts, *GOODS, *OPERATIONS, *PROGRAM)
    return [part for part in dict.fromkeys(fixed) if len(part) > 1]


def write(folder: Path, *, seed: int) -> None:
    """Writes the Hugging Face folder."""
    known: Iterator[Messages] = islice(conversations(seed=0), TOKENIZER_SAMPLE)
    write_policy(folder, conversations=known, tags=(), words=words(), seed=seed)


def main(arguments: Sequence[str] | None = None) -> None:
    policy_command(write, "the freight yard's", arguments)


if __name__ == "__main__":
    main()
