"""Makes the demonstration's untrained policy: a tiny random Qwen3 for the demonstrations' words.

    python world/policy.py --output untrained --seed 1

Pieces of names, of tools and of JSON are one token each: which tool to call, with what, and what an
observation says is what is learnt, and not how JSON is spelt.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from demonstrations import traces
from roles import pieces_told
from task import SHAPE

from tasks.worlds.names import PIECES
from toolwright.model.tiny_policy import policy_command, write_policy

TAGS = tuple(
    tag for role in ("think", "tool_call", "answer") for tag in (f"<{role}>", f"</{role}>")
)
FIXED = (
    "the answer is ",
    " of ",
    "(",
    "name",
    ": string",
    ", edition",
    "): ",
    '{"name": "',
    '", "arguments": {"',
    '": "',
    '", "edition": "',
    '"}}',
    '{"',
    '", "',
    '"}',
    '{"status": "error", "error": {"type": "',
    'validation_error", "stage": "pre", "tool": "',
    '", "violations": [{"path": "$.',
    'edition", "rule": "enum", "expected": "[\'',
    "']\"}]}}",
)
"""Of prompts, calls, observations and the pre-check's errors."""
TOKENIZER_SAMPLE = 1000  # conversations


def words() -> list[str]:
    """Texts that are one token each."""
    names = [piece for ends in PIECES.values() for some in ends for piece in some]
    asked: list[str] = []
    for relation in SHAPE.told:
        most = SHAPE.wordings
        for text in (*relation.questions[:most], *relation.phrases[:most]):
            asked += text.split("{x}")
    every = (*names, *asked, *pieces_told(), *FIXED)
    return list(dict.fromkeys(one for one in every if len(one) > 1 or one == "("))


def write(folder: Path, *, seed: int) -> None:
    """Writes the Hugging Face folder."""
    known = (one.messages for one in islice(traces(seed=0), TOKENIZER_SAMPLE))
    write_policy(folder, conversations=known, tags=TAGS, words=words(), seed=seed)


def main(arguments: Sequence[str] | None = None) -> None:
    policy_command(write, "the demonstration's", arguments)


if __name__ == "__main__":
    main()
