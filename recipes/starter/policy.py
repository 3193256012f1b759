"""Makes the policy to start from: a tiny random Qwen3 that knows the conversations' words.

    python policy.py --output untrained --seed 1

It is there so that everything runs on a laptop without a download. For a model of yours, name its
folder under policy.model in recipe.toml; then this file is not needed.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from conversations import conversations

from toolwright.model.tiny_policy import policy_command, write_policy

TAGS = ("<look_up>", "</look_up>", "<result>", "</result>", "<answer>", "</answer>")


def write(folder: Path, *, seed: int) -> None:
    known = islice(conversations(seed=0), 2000)
    write_policy(folder, conversations=known, tags=TAGS, seed=seed)


if __name__ == "__main__":
    policy_command(write, "the")
