"""Whether a trajectory has the form that its prompt asks for. Pure, in time linear in the text.

    <think>...</think> <sql>...</sql>                any number of times, a turn each
    <think>...</think> <solution>...</solution>      the last turn

Nothing but blanks stands outside of the blocks, and no block is empty or holds another's tags.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

Block = Literal["sql", "solution"]
TAGS = tuple(f"<{slash}{tag}>" for tag in ("think", "sql", "solution") for slash in ("", "/"))


def well_formed(texts: Sequence[str], *, think: bool = True) -> bool:
    """Whether the texts of a trajectory's actions have the form. think: each has to begin with a
    thought."""
    if not texts:
        return False
    ends: list[Block | None] = [block_of(text, think=think) for text in texts]
    return ends[-1] == "solution" and all(one == "sql" for one in ends[:-1])


def block_of(text: str, *, think: bool = True) -> Block | None:
    """What a turn ends with; None where it breaks the form."""
    rest = text.strip()
    thought, rest = _taken(rest, "think")
    if thought is None and think:
        return None
    names: tuple[Block, ...] = ("sql", "solution")
    for name in names:
        body, behind = _taken(rest, name)
        if body is not None:
            return name if not behind else None
    return None


def _taken(text: str, tag: str) -> tuple[str | None, str]:
    """(the body of the block that the text begins with, the rest); (None, text) without one."""
    opening, closing = f"<{tag}>", f"</{tag}>"
    end = text.find(closing)
    if not text.startswith(opening) or end < 0:
        return None, text
    body = text[len(opening) : end].strip()
    if not body or any(mark in body for mark in TAGS):
        return None, text
    return body, text[end + len(closing) :].strip()
