"""Makes the encyclopedia's untrained policy: a tiny random Qwen3 for the demonstrations' words.

    python world/policy.py --output untrained --seed 1

Pieces of names and the fixed parts of questions, passages and notes are one token each: what to
search for, what to note and when to answer is what is learnt, and not how words are spelt.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from demonstrations import conversations
from task import SHAPE

from tasks.worlds.names import PIECES
from toolwright.model.tiny_policy import policy_command, write_policy

ROLES = ("search", "documents", "memory", "answer")
TAGS = tuple(tag for role in ROLES for tag in (f"<{role}>", f"</{role}>"))
TOKENIZER_SAMPLE = 1000  # conversations


def words() -> list[str]:
    """Texts that are one token each."""
    names = [piece for ends in PIECES.values() for some in ends for piece in some]
    fixed = ["Doc ", "(Title: ", ") "]
    for relation in SHAPE.told:
        asked = SHAPE.wordings
        wordings = (*relation.questions[:asked], *relation.phrases[:asked])
        fixed += [part for text in wordings for part in text.split("{x}")]
        note = relation.note.removesuffix("{y}")
        fixed += [f": {note}", f"; {note}", f" {note}", f"{relation.name} of "]
    return list(dict.fromkeys(part for part in (*names, *fixed) if len(part) > 1))


def write(folder: Path, *, seed: int) -> None:
    """Writes the Hugging Face folder."""
    known: Iterator[list[dict[str, str]]] = islice(conversations(seed=0), TOKENIZER_SAMPLE)
    write_policy(folder, conversations=known, tags=TAGS, words=words(), seed=seed)


def main(arguments: Sequence[str] | None = None) -> None:
    policy_command(write, "the encyclopedia's", arguments)


if __name__ == "__main__":
    main()
