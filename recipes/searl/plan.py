"""The plan that SEARL's policy writes first: its grammar, and the graph that it means.

    - plan    := any text, "##DAG_LIST", a bracketed list, then sections
    - list    := "[" item ("," item)* "]"
    - item    := "(" id ")" | "(" id "," id ")"
    - id      := "ST" "_"? digits, any case        (ST1, ST2): ST2 depends on ST1
    - section := "##" id ":"? title NL, then lines "1. text" or "1) text"

Pure. The text is a policy's: it is read in one pass by a hand-written scanner, in linear time, and
never evaluated. Source: SEARL (arXiv 2604.07791), section 3.1 and appendix F.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

Reason = Literal[
    "no_dag",
    "bad_dag",
    "empty_dag",
    "bad_item",
    "bad_id",
    "self_loop",
    "duplicate_section",
    "missing_section",
    "no_steps",
    "too_many",
    "cycle",
]
"""Why a text is no plan, in the order in which it is asked."""

MARK = "##DAG_LIST"
LONGEST = 100_000
"""Characters that are read: a plan is a page."""
MOST_DIGITS = 6
"""Longest id: int() of a million digits takes minutes."""

_ID = re.compile(r"st_?(\d+)", re.IGNORECASE)
_SECTION = re.compile(r"##[ \t]*st_?(\d+)[ \t]*:?(.*)", re.IGNORECASE)
_STEP = re.compile(r"[ \t]*\d+[.)][ \t]*(\S.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Subtasks and what depends on what.

    nodes: ids, ascending. edges: (u, v), v depends on u, in order of appearance. order: the nodes
    so that each comes after those that it depends on, the smallest first among ready ones.
    """

    nodes: tuple[int, ...]
    edges: tuple[tuple[int, int], ...]
    order: tuple[int, ...]
    titles: Mapping[int, str]
    steps: Mapping[int, tuple[str, ...]]

    def query(self, node: int) -> str:
        """What the memory is asked for a subtask: its steps."""
        return "\n".join(self.steps[node])


class NoPlan(Exception):
    """The text is no plan."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason = reason


def whole_task(question: str) -> Plan:
    """The plan of one subtask that stands in for one that could not be read."""
    return Plan(
        nodes=(1,), edges=(), order=(1,), titles={1: "the whole task"}, steps={1: (question,)}
    )


def parse(text: str, max_subtasks: int, *, strict_sections: bool = False) -> Plan:
    """The plan that stands in a text. NoPlan with the first reason that holds.

    strict_sections: a section that the list does not name is refused (bad_dag) instead of standing
    alone in the graph.
    """
    text = text[:LONGEST]
    start = text.find(MARK)
    if start < 0:
        raise NoPlan("no_dag")
    listed, rest = _bracketed(text[start + len(MARK) :])
    named, edges = _items(listed)
    titles, steps = _sections(rest)
    if any(node not in titles for node in named):
        raise NoPlan("missing_section")
    if strict_sections and any(node not in named for node in titles):
        raise NoPlan("bad_dag")
    if any(not found for found in steps.values()):
        raise NoPlan("no_steps")
    nodes = tuple(sorted(titles))
    if len(nodes) > max_subtasks:
        raise NoPlan("too_many")
    return Plan(nodes=nodes, edges=edges, order=_ordered(nodes, edges), titles=titles, steps=steps)


def _bracketed(text: str) -> tuple[str, str]:
    """(what stands between the brackets, what follows). NoPlan: bad_dag."""
    body = text.lstrip()
    end = body.find("]")
    if not body.startswith("[") or end < 0:
        raise NoPlan("bad_dag")
    return body[1:end], body[end + 1 :]


def _items(listed: str) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...]]:
    """(ids in order of appearance, edges), without duplicates. Raises NoPlan."""
    named: dict[int, None] = {}
    edges: dict[tuple[int, int], None] = {}
    items = list(_parenthesised(listed))
    if not items:
        raise NoPlan("empty_dag")
    parsed = [[word.strip() for word in item.split(",")] for item in items]
    # (a,) and (a, b,) end in a comma.
    parsed = [words[:-1] if len(words) > 1 and not words[-1] else words for words in parsed]
    if any(not 1 <= len(words) <= 2 for words in parsed):
        raise NoPlan("bad_item")
    for words in parsed:
        ids = [_id(word) for word in words]
        named.update(dict.fromkeys(ids))
        if len(ids) == 2:
            edges[ids[0], ids[1]] = None
    if any(one == other for one, other in edges):
        raise NoPlan("self_loop")
    return tuple(named), tuple(edges)


def _parenthesised(listed: str) -> Iterator[str]:
    """What stands in each pair of parentheses, which commas part. NoPlan: bad_dag."""
    place, end = _skipped(listed, 0), 0
    while place < len(listed):
        end = listed.find(")", place)
        if listed[place] != "(" or end < 0 or listed.find("(", place + 1, end) >= 0:
            raise NoPlan("bad_dag")
        yield listed[place + 1 : end]
        place = _skipped(listed, end + 1)
        if place < len(listed):
            if listed[place] != ",":
                raise NoPlan("bad_dag")
            place = _skipped(listed, place + 1)


def _skipped(text: str, place: int) -> int:
    """The next place that holds no white space."""
    while place < len(text) and text[place].isspace():
        place += 1
    return place


def _id(word: str) -> int:
    found = _ID.fullmatch(word)
    if found is None or len(found[1]) > MOST_DIGITS:
        raise NoPlan("bad_id")
    return int(found[1])


def _sections(text: str) -> tuple[dict[int, str], dict[int, tuple[str, ...]]]:
    """(titles, steps) by id. NoPlan: duplicate_section."""
    titles: dict[int, str] = {}
    steps: dict[int, list[str]] = {}
    node: int | None = None
    for line in text.splitlines():
        head = _SECTION.fullmatch(line.strip())
        if head is not None and len(head[1]) <= MOST_DIGITS:
            node = int(head[1])
            if node in titles:
                raise NoPlan("duplicate_section")
            titles[node], steps[node] = head[2].strip(), []
        elif node is not None and (step := _STEP.fullmatch(line)) is not None:
            steps[node].append(step[1].strip())
    return titles, {found: tuple(lines) for found, lines in steps.items()}


def _ordered(nodes: tuple[int, ...], edges: tuple[tuple[int, int], ...]) -> tuple[int, ...]:
    """NoPlan: cycle."""
    waits = dict.fromkeys(nodes, 0)
    after: dict[int, list[int]] = {node: [] for node in nodes}
    for one, other in edges:
        waits[other] += 1
        after[one].append(other)
    ready = [node for node in nodes if not waits[node]]
    order: list[int] = []
    while ready:
        order.append(node := heapq.heappop(ready))
        for other in after[node]:
            waits[other] -= 1
            if not waits[other]:
                heapq.heappush(ready, other)
    if len(order) < len(nodes):
        raise NoPlan("cycle")
    return tuple(order)
