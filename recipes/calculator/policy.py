"""Makes the calculator's untrained policy: a tiny random Qwen3 for the demonstrations' words.

    python policy.py --output untrained --seed 1

The tokenizer is trained on demonstrations only. Wordings kept for evaluation are unknown to it.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from demonstrations import conversations

from toolwright.tiny_policy import write_policy

TAGS = ("<python>", "</python>", "<result>", "</result>", "<answer>", "</answer>")
TOKENIZER_SAMPLE = 4000  # conversations


def write(folder: Path, *, seed: int) -> None:
    """Writes the Hugging Face folder."""
    known = islice(conversations(seed=0), TOKENIZER_SAMPLE)
    write_policy(folder, conversations=known, tags=TAGS, seed=seed)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Make the calculator's untrained policy.")
    parser.add_argument("--output", type=Path, required=True, help="folder to write")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    write(given.output, seed=given.seed)
    print(f"an untrained policy: {given.output}")


if __name__ == "__main__":
    main()
