"""Makes the demonstration's untrained policy: a tiny random Qwen3 for its words.

    python -m toolwright.script world/policy.py --output untrained --seed 1

A country's name and the fixed parts of questions, passages and programs are one token each, digits
are tokens of their own: what to look up, what to copy and how to reckon is what is learnt.
"""

from __future__ import annotations

from toolwright.model.tiny_policy import single_tokens, tags_of, tiny_policy

from .demonstrations import conversations
from .lands import FACTS, UNITS, lands
from .task import DIVIDED, KINDS


def words() -> list[str]:
    """Texts that are one token each."""
    fixed = ["Doc ", "(Title: ", ") ", ", ", "none", "print(", DIVIDED, "\\boxed{", *UNITS.values()]
    for fact in FACTS:
        fixed += [f"{fact} of ", f"{fact.capitalize()} of ", f", {fact}: "]
    for kind in KINDS:
        for wording in kind.wordings:
            fixed += [part for one in wording.split("{a}") for part in one.split("{b}")]
    return single_tokens((*lands(), *fixed))


TAGS = tags_of("search", "python", "result", "answer")
write, main = tiny_policy(conversations, tags=TAGS, words=words, sample=1000)
