"""Makes the calculator's untrained policy: a tiny random Qwen3 for the demonstrations' words.

    python policy.py --output untrained --seed 1

The tokenizer is trained on demonstrations only. Wordings kept for evaluation are unknown to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from demonstrations import conversations

from toolwright.model.tiny_policy import policy_command, write_policy

TAGS = ("<python>", "</python>", "<result>", "</result>", "<answer>", "</answer>")
TOKENIZER_SAMPLE = 4000  # conversations


def write(folder: Path, *, seed: int) -> None:
    """Writes the Hugging Face folder."""
    known = islice(conversations(seed=0), TOKENIZER_SAMPLE)
    write_policy(folder, conversations=known, tags=TAGS, seed=seed)


def main(arguments: Sequence[str] | None = None) -> None:
    policy_command(write, "the calculator's", arguments)


if __name__ == "__main__":
    main()
