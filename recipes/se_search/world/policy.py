"""Makes the encyclopedia's untrained policy: a tiny random Qwen3 for the demonstrations' words.

    python -m toolwright.script world/policy.py --output untrained --seed 1

Pieces of names and the fixed parts of questions, passages and notes are one token each: what to
search for, what to note and when to answer is what is learnt, and not how words are spelt.
"""

from __future__ import annotations

from tasks.worlds.names import pieces
from tasks.worlds.questions import SHAPE
from toolwright.model.tiny_policy import single_tokens, tags_of, tiny_policy

from .demonstrations import conversations


def words() -> list[str]:
    """Texts that are one token each."""
    fixed = ["Doc ", "(Title: ", ") "]
    for relation in SHAPE.told:
        fixed += [part for text in SHAPE.wordings_of(relation) for part in text.split("{x}")]
        note = relation.note.removesuffix("{y}")
        fixed += [f": {note}", f"; {note}", f" {note}", f"{relation.name} of "]
    return single_tokens((*pieces(), *fixed))


TAGS = tags_of("search", "documents", "memory", "answer")
write, main = tiny_policy(conversations, tags=TAGS, words=words, sample=1000)
