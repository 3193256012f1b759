"""Makes the policy to start from: a tiny random Qwen3 that knows both worlds' words.

python policy.py --output untrained --seed 1
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from toolwright.model.tiny_policy import policy_command, write_policy

RECIPES = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(RECIPES / "calculator"), str(RECIPES / "starter")]

from conversations import conversations as of_shop  # noqa: E402
from demonstrations import conversations as of_sums  # noqa: E402

TAGS = (
    "<python>", "</python>", "<look_up>", "</look_up>", "<result>", "</result>", "<answer>",
    "</answer>",
)  # fmt: skip
OF_EACH = 3000  # conversations that the tokenizer is made of


def both() -> Iterator[list[dict[str, str]]]:
    yield from islice(of_sums(seed=0), OF_EACH)
    yield from islice(of_shop(seed=0), OF_EACH)


def write(folder: Path, *, seed: int) -> None:
    """Writes the Hugging Face folder."""
    write_policy(folder, conversations=both(), tags=TAGS, seed=seed)


if __name__ == "__main__":
    policy_command(write, "the")
