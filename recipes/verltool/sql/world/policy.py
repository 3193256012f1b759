"""Makes the databases' untrained policy: a tiny random Qwen3 for the demonstrations' words.

    python world/policy.py --output untrained --seed 1

The fixed parts of questions and queries and the pieces of names are one token each: which query to
write, and to look a name up before, is what is learnt, and not how SQL is spelt.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from databases import DOMAINS, Owner
from demonstrations import ANSWER, LOOK_UP, conversations
from task import KINDS, WORDINGS, Question, choices

from tasks.worlds.names import PIECES
from toolwright.model.tiny_policy import policy_command, write_policy

TAGS = tuple(
    f"<{slash}{tag}>" for tag in ("think", "sql", "observation", "solution") for slash in ("", "/")
)
TOKENIZER_SAMPLE = 1000  # conversations
_LITERAL = "\0"


def words() -> list[str]:
    """Texts that are one token each."""
    names = [
        piece for domain in DOMAINS.values() for ends in PIECES[domain.names] for piece in ends
    ]
    thoughts = [text.removeprefix("<think>").removesuffix("</think>") for text in (LOOK_UP, ANSWER)]
    fixed = [*thoughts, "name\n", "\n(1 row)\n", " turns left."]
    for domain in DOMAINS.values():
        for kind in KINDS:
            wordings = WORDINGS[domain.name][kind]
            fixed += [part for wording in wordings for part in wording.split("{x}")]
            for number, chosen in enumerate(choices(domain, kind)):
                asked = Question(
                    domain=domain,
                    kind=kind,
                    wording=number,
                    about=Owner(name=_LITERAL, stored=_LITERAL),
                )
                rest = asked.query(number).removeprefix(chosen)
                looks = asked.look_up if kind != "order" else ""
                fixed += [chosen, *rest.split(_LITERAL), *looks.split(_LITERAL)]
    return list(dict.fromkeys(part for part in (*names, *fixed) if len(part) > 1))


def write(folder: Path, *, seed: int) -> None:
    """Writes the Hugging Face folder."""
    known = islice(conversations(seed=0), TOKENIZER_SAMPLE)
    write_policy(folder, conversations=known, tags=TAGS, words=words(), seed=seed)


def main(arguments: Sequence[str] | None = None) -> None:
    policy_command(write, "the databases'", arguments)


if __name__ == "__main__":
    main()
