"""Which tools are one: classes of near tools.

Pure. Two tools are near if their cosine is at least `delta` (inclusive, within 1e-12). Two ways
exist to make classes of near tools (SEARL, section 3.3 and its released code):

- greedy: new tools are taken in order. Each joins the most similar node at that moment; if no node
  is near enough, it becomes a node. Chains stay separate.
- union_find: all pairs, transitively; the earliest of a class represents it. Chains become one.

Neither depends on names, and greedy never moves a tool that is in the memory already.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

Mode = Literal["greedy", "union_find"]

TOLERANCE = 1e-12
BLOCK = 256
"""Rows of similarities at a time: 10,000 tools would be 400 MB of them at once."""

Key = tuple[int, int]
"""Key of a tool. (-1, id) is a node, which sorts before all new tools; an older node sorts
first."""


def greedy(new: Sequence[Key], near: Mapping[Key, Sequence[Key]]) -> dict[Key, Key]:
    """New tool -> the representative of its class.

    new: in their order. near: new tool -> the nodes and the earlier new tools that are near, the
    nearest first.
    """
    root: dict[Key, Key] = {}
    for one in new:
        # A merged tool is not compared any more: only nodes and representatives are.
        into = (key for key in near[one] if _is_node(key) or root.get(key) == key)
        root[one] = next(into, one)
    return root


def union_find(
    new: Sequence[Key], near: Mapping[Key, Sequence[Key]], old: Iterable[tuple[Key, Key]] = ()
) -> dict[Key, Key]:
    """New tool, or node that moves -> the representative of its class.

    near: as for `greedy`; keys that are neither nodes nor in `new` are ignored. old: pairs of nodes
    that are near each other.
    """
    order = {key: place for place, key in enumerate(new)}
    root: dict[Key, Key] = {key: key for key in new}

    def top(key: Key) -> Key:
        while root.setdefault(key, key) != key:
            root[key] = root[root[key]]
            key = root[key]
        return key

    def age(key: Key) -> tuple[bool, int]:
        return (False, key[1]) if _is_node(key) else (True, order[key])

    pairs = ((one, key) for one in new for key in near[one] if _is_node(key) or key in order)
    for one, other in (*old, *pairs):
        first, second = sorted((top(one), top(other)), key=age)
        root[second] = first
    return {key: top(key) for key in list(root)}


def _is_node(key: Key) -> bool:
    return key[0] < 0
