"""How often a trajectory breaks the form that its prompt asks for. Pure.

Three families of rules (arXiv:2603.03293; what counts as one violation is ours):

    searches   more turns of search than T_max: 1
    actions    each turn without an action: 1
    tags       each opening inside a tag that is still open, each closing without its opening, each
               tag that a turn leaves open: 1. Each block that may not follow the one before it: 1.
               A last block that is no answer: 1.

    after                          may come
    the beginning, think, memory   think, search, answer
    search                         documents
    documents                      memory; without memory blocks: think, search, answer
    answer                         nothing

Documents are the environment's. A policy that opens such a tag breaks a rule each time, and what it
writes there is no block: nothing may follow it that might follow documents.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from .blocks import Role, Tags, marks
from .dialogue import Piece, Speaker

CountMode = Literal["each", "per_rule"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Violations:
    """How often each rule was broken."""

    too_many_searches: int
    invalid_actions: int
    tag: int
    order: int

    def count(self, mode: CountMode = "each") -> int:
        """N_rules. "per_rule" counts each of the three families once at most."""
        families = (self.too_many_searches, self.invalid_actions, self.tag + self.order)
        return sum(map(bool, families)) if mode == "per_rule" else sum(families)


def violations(
    pieces: Iterable[Piece],
    *,
    n_search: int,
    t_max: int,
    invalid_actions: int,
    tags: Tags,
) -> Violations:
    """Violations in what was said in a trajectory. n_search: turns of search. t_max: how many may
    be."""
    allowed = _allowed(tags)
    tag = order = 0
    last: Role | None = None
    for piece in pieces:
        if piece.speaker is Speaker.DOCUMENTS:
            order += "documents" not in allowed[last]
            last = "documents"
            continue
        opened: Role | None = None
        for mark in marks(piece.text, tags):
            if not mark.opens:
                tag += mark.role != opened
                opened = None if mark.role == opened else opened
                continue
            forged = mark.role == "documents"
            tag += forged or opened is not None
            opened = mark.role
            if not forged:
                order += mark.role not in allowed[last]
                last = mark.role
        tag += opened is not None and opened != "documents"
    return Violations(
        too_many_searches=int(n_search > t_max),
        invalid_actions=invalid_actions,
        tag=tag,
        order=order + (last != "answer"),
    )


def _allowed(tags: Tags) -> dict[Role | None, tuple[Role, ...]]:
    free: tuple[Role, ...] = ("think", "search", "answer")
    return {
        None: free,
        "think": free,
        "memory": free,
        "search": ("documents",),
        "documents": ("memory",) if tags.memory else free,
        "answer": (),
    }
