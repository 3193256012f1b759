"""Makes the policy to start from: a tiny random Qwen3 that knows the conversations' words.

    python policy.py --output untrained --seed 1

It is there so that everything runs on a laptop without a download. For a model of yours, name its
folder under policy.model in recipe.toml; then this file is not needed.
"""

from __future__ import annotations

import argparse
from itertools import islice
from pathlib import Path

from conversations import conversations

from toolwright.tiny_policy import write_policy

TAGS = ("<look_up>", "</look_up>", "<result>", "</result>", "<answer>", "</answer>")


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the untrained policy.")
    parser.add_argument("--output", type=Path, required=True, help="folder to write")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    known = islice(conversations(seed=0), 2000)
    write_policy(given.output, conversations=known, tags=TAGS, seed=given.seed)
    print(f"an untrained policy: {given.output}")


if __name__ == "__main__":
    main()
