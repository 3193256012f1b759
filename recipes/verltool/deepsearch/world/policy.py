"""Makes the demonstration's untrained policy: a tiny random Qwen3 for its words.

    python world/policy.py --output untrained --seed 1

A country's name and the fixed parts of questions, passages and programs are one token each, digits
are tokens of their own: what to look up, what to copy and how to reckon is what is learnt.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from demonstrations import conversations
from lands import FACTS, UNITS, lands
from task import DIVIDED, KINDS

from toolwright.model.tiny_policy import policy_command, write_policy

TAGS = tuple(
    tag for name in ("search", "python", "result", "answer") for tag in (f"<{name}>", f"</{name}>")
)
TOKENIZER_SAMPLE = 1000  # conversations


def words() -> list[str]:
    """Texts that are one token each."""
    fixed = ["Doc ", "(Title: ", ") ", ", ", "none", "print(", DIVIDED, "\\boxed{", *UNITS.values()]
    for fact in FACTS:
        fixed += [f"{fact} of ", f"{fact.capitalize()} of ", f", {fact}: "]
    for kind in KINDS:
        for wording in kind.wordings:
            fixed += [part for one in wording.split("{a}") for part in one.split("{b}")]
    return list(dict.fromkeys(part for part in (*lands(), *fixed) if len(part) > 1))


def write(folder: Path, *, seed: int) -> None:
    """Writes the Hugging Face folder."""
    known: Iterator[list[dict[str, str]]] = islice(conversations(seed=0), TOKENIZER_SAMPLE)
    write_policy(folder, conversations=known, tags=TAGS, words=words(), seed=seed)


def main(arguments: Sequence[str] | None = None) -> None:
    policy_command(write, "the demonstration's", arguments)


if __name__ == "__main__":
    main()
