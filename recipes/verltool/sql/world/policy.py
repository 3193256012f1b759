"""Makes the databases' untrained policy: a tiny random Qwen3 for the demonstrations' words.

    python -m toolwright.script world/policy.py --output untrained --seed 1

The fixed parts of questions and queries and the pieces of names are one token each: which query to
write, and to look a name up before, is what is learnt, and not how SQL is spelt.
"""

from __future__ import annotations

from tasks.worlds.names import pieces
from toolwright.model.tiny_policy import single_tokens, tags_of, tiny_policy

from .databases import DOMAINS, Owner
from .demonstrations import ANSWER, LOOK_UP, conversations
from .task import KINDS, WORDINGS, DatabaseQuestion, choices

_LITERAL = "\0"
_ABOUT = Owner(name=_LITERAL, stored=_LITERAL)


def words() -> list[str]:
    """Texts that are one token each."""
    names = pieces(domain.names for domain in DOMAINS.values())
    thoughts = [text.removeprefix("<think>").removesuffix("</think>") for text in (LOOK_UP, ANSWER)]
    fixed = [*thoughts, "name\n", "\n(1 row)\n", " turns left."]
    for domain in DOMAINS.values():
        for kind in KINDS:
            wordings = WORDINGS[domain.name][kind]
            fixed += [part for wording in wordings for part in wording.split("{x}")]
            for number, chosen in enumerate(choices(domain, kind)):
                asked = DatabaseQuestion(domain=domain, kind=kind, wording=number, about=_ABOUT)
                rest = asked.query(number).removeprefix(chosen)
                looks = asked.look_up if kind != "order" else ""
                fixed += [chosen, *rest.split(_LITERAL), *looks.split(_LITERAL)]
    return single_tokens((*names, *fixed))


TAGS = tags_of("think", "sql", "observation", "solution")
write, main = tiny_policy(conversations, tags=TAGS, words=words, sample=1000)
