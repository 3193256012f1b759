"""Makes the folder that the demonstration's engine takes for a policy: a tokenizer, and random
weights that no sampler uses.

    python -m toolwright.script world/policy.py --output policy --seed 1

What is sampled comes from scripts (script.py). The engine and the learner need a Hugging Face
folder all the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from toolwright.model.tiny_policy import Conversation, make_tokenizer, policy_program, write_policy

from .agents import all_messages

TAGS = ("<tool_call>", "</tool_call>")
CONTEXT = 32768
"""Tokens; the tiny policy's own 1,024 are less than the airline's rules."""
README = Path(__file__).resolve().parents[1] / "README.md"


def conversations() -> Iterator[Conversation]:
    """What the tokenizer learns its words from."""
    yield [
        {"role": "user", "content": README.read_text(encoding="utf-8")},
        {"content": "\n".join(all_messages())},
    ]


@cache
def tokenizer() -> Any:
    """That of the folder, without the folder."""
    return make_tokenizer(conversations(), TAGS)


def write(folder: Path, *, seed: int) -> None:
    """Writes the Hugging Face folder."""
    write_policy(folder, conversations=conversations(), tags=TAGS, seed=seed)
    longest = {"config": "max_position_embeddings", "tokenizer_config": "model_max_length"}
    for name, key in longest.items():
        file = folder / f"{name}.json"
        settings = {**json.loads(file.read_text(encoding="utf-8")), key: CONTEXT}
        file.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


main = policy_program(write)
