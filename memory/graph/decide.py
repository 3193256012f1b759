"""From a group's work and a version of the memory to a change with everything decided.

One rule answers two questions (SEARL, section 3.3): which node holds each registered tool, and
which canonical name each tool of each rollout has. The second question covers the nodes and all
candidates of the group. So two rollouts that made one tool get one name, whichever of them
registers it. The registering rollout's candidates come first in both.

Pure, but for the function `alike`. The order of rollouts that register nothing decides only the
names of their tools.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from memory.graph.graph import SLACK, ToolGraph, Vectors, near_enough
from memory.graph.merging import BLOCK, Key, greedy, union_find
from memory.graph.naming import free_name, under_name
from memory.types import (
    Change,
    GroupWork,
    Joined,
    NewNode,
    Node,
    Prefer,
    Refused,
    RolloutWork,
    Stats,
    Tool,
)

Alike = Callable[[Tool, Tool], bool]
"""Whether two tools give the same on each other's recorded inputs."""

MOST_ASKED = 3
"""Maximum number of near tools that a tool is checked against: each costs runs in a sandbox."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A candidate that passed the guards. key: (place of its rollout, place among the rollout's
    candidates). vector: float32 [d], of length 1 or 0."""

    key: Key
    tool: Tool
    vector: Vectors
    registers: bool = False


def decide(
    work: GroupWork,
    graph: ToolGraph,
    candidates: Sequence[Candidate],
    refused: Sequence[Refused] = (),
    alike: Alike | None = None,
) -> Change:
    """The change that follows `graph`. alike: None merges whatever is near enough."""
    ordered = sorted(candidates, key=lambda one: not one.registers)
    near = _near(work, graph, ordered, alike)
    registering = [one for one in ordered if one.registers]
    classes = _classes(work, graph, registering, near)
    made, ids, renamed = _nodes(work, graph, registering, classes)
    registered = {
        one.tool.name: renamed.get(ids[one.key]) or graph.by_id[ids[one.key]].name
        for one in registering
    }
    unions = tuple(
        (key[1], ids[root]) for key, root in classes.items() if key[0] < 0 and root != key
    )
    joined = tuple(
        Joined(
            name=one.tool.name,
            into=ids[one.key],
            inputs=one.tool.inputs if alike is not None else (),
        )
        for one in registering
        if classes[one.key] != one.key
    )
    return Change(
        group=work.group,
        step=work.step,
        delta=work.delta,
        unions=unions,
        made=made,
        joined=joined,
        replaced=_replaced(work, graph, registering, ids, unions),
        edges=_edges(work, graph, ids),
        used=_used(work, graph, ids),
        counts=work.counts,
        canonical=_canonical(work, graph, ordered, near, ids, renamed),
        refused=tuple(refused),
        registered=registered,
    )


def _near(
    work: GroupWork, graph: ToolGraph, ordered: Sequence[Candidate], alike: Alike | None
) -> dict[Key, list[tuple[Key, float]]]:
    """Candidate -> nodes and earlier candidates that it may be merged with, the nearest first;
    among equals the earliest first."""
    found: dict[Key, list[tuple[Key, float]]] = {}
    tools = {one.key: one.tool for one in ordered}
    vectors = np.stack([one.vector for one in ordered]) if ordered else graph.vectors[:0]
    nodes = graph.near(vectors, work.delta)
    maybe = vectors @ vectors.T >= work.delta - SLACK  # a first choice in float32
    for place, one in enumerate(ordered):
        near: list[tuple[Key, float]] = [
            ((-1, node_id), cosine) for node_id, cosine in nodes[place]
        ]
        before = np.flatnonzero(maybe[place, :place])
        for earlier, cosine in near_enough(vectors[before], before, one.vector, work.delta):
            near.append((ordered[earlier].key, cosine))
        near.sort(key=lambda entry: -entry[1])  # stable: nodes first, then in their order
        if alike is not None:
            near = [
                (key, cosine)
                for key, cosine in near[:MOST_ASKED]
                if alike(one.tool, tools[key] if key[0] >= 0 else graph.by_id[key[1]].tool)
            ]
        found[one.key] = near
    return found


def _classes(
    work: GroupWork,
    graph: ToolGraph,
    candidates: Sequence[Candidate],
    near: Mapping[Key, list[tuple[Key, float]]],
) -> dict[Key, Key]:
    """Each candidate, and each node that moves -> the representative of its class."""
    keys = [one.key for one in candidates]
    pairs = {key: [other for other, _ in near[key]] for key in keys}
    if work.mode == "greedy":
        return greedy(keys, pairs)
    old = _old_pairs(graph, work.delta) if graph.apart > work.delta and not work.check else ()
    return union_find(keys, pairs, old)


def _old_pairs(graph: ToolGraph, delta: float) -> Iterator[tuple[Key, Key]]:
    """Pairs of nodes that were separate at a larger delta and are near at this one."""
    for first in range(0, graph.next_id, BLOCK):
        rows = graph.vectors[first : first + BLOCK]
        for node_id, near in enumerate(graph.near(rows, delta), first):
            if node_id in graph.by_id:
                yield from (((-1, other), (-1, node_id)) for other, _ in near if other < node_id)


def _nodes(
    work: GroupWork,
    graph: ToolGraph,
    registering: Sequence[Candidate],
    classes: Mapping[Key, Key],
) -> tuple[tuple[NewNode, ...], dict[Key, int], dict[int, str]]:
    """(new nodes, id of the node that holds each class and each registered tool, names of the new
    nodes)."""
    made: list[NewNode] = []
    ids: dict[Key, int] = {}
    names: dict[int, str] = {}
    taken = {*graph.names, *work.reserved}
    for one in registering:
        if classes[one.key] != one.key:
            continue
        tool = under_name(one.tool, free_name(one.tool, taken))
        taken.add(tool.name)
        ids[one.key] = graph.next_id + len(made)
        names[ids[one.key]] = tool.name
        made.append(
            NewNode(tool=tool, vector=one.vector.astype("<f4").tobytes(), source=work.registers)
        )
    for key, root in classes.items():
        ids[key] = root[1] if root[0] < 0 else ids[root]
    return tuple(made), ids, names


def _holder(
    name: str,
    rollout: RolloutWork,
    place: int,
    graph: ToolGraph,
    ids: Mapping[Key, int],
) -> int | None:
    """Id of the node that a rollout's name leads to after the change; the rollout's own candidates
    come first."""
    for number, tool in enumerate(rollout.candidates):
        if tool.name == name:
            return ids.get((place, number))
    node = graph.node(name)
    return None if node is None else ids.get((-1, node.id), node.id)


def _used(work: GroupWork, graph: ToolGraph, ids: Mapping[Key, int]) -> dict[int, Stats]:
    """Node id -> outcomes of its calls. Calls of candidates that are not registered are not
    counted."""
    used: dict[int, Stats] = {}
    for place, rollout in enumerate(work.rollouts):
        for name, stats in rollout.used.items():
            if (held := _holder(name, rollout, place, graph, ids)) is not None:
                last = work.step if stats.calls else -1
                used[held] = used.get(held, Stats()) + replace(stats, last_used=last)
    return used


def _edges(
    work: GroupWork, graph: ToolGraph, ids: Mapping[Key, int]
) -> tuple[tuple[int, int, int], ...]:
    """Edges of the registering rollout, between nodes; parallel edges are summed, self loops
    dropped."""
    counts: dict[tuple[int, int], int] = {}
    for place, rollout in enumerate(work.rollouts):
        if rollout.trajectory != work.registers:
            continue
        for one, other, count in rollout.edges:
            first = _holder(one, rollout, place, graph, ids)
            second = _holder(other, rollout, place, graph, ids)
            if first is not None and second is not None and first != second:
                counts[first, second] = counts.get((first, second), 0) + count
    return tuple((*ends, count) for ends, count in counts.items())


def _replaced(
    work: GroupWork,
    graph: ToolGraph,
    registering: Sequence[Candidate],
    ids: Mapping[Key, int],
    unions: Sequence[tuple[int, int]],
) -> dict[int, Tool]:
    """Nodes that take another tool's code, by the rule of `prefer`."""
    if work.prefer == "first":
        return {}
    found: dict[int, Tool] = {}
    best: dict[int, float] = {}
    own = next((one.used for one in work.rollouts if one.trajectory == work.registers), {})
    rivals = [
        *(
            (into, graph.by_id[gone].tool, _weight(work.prefer, graph.by_id[gone]))
            for gone, into in unions
        ),
        *(
            (ids[one.key], one.tool, _worth(work.prefer, 1, own.get(one.tool.name, Stats())))
            for one in registering
        ),
    ]
    for into, tool, worth in rivals:
        node = graph.by_id.get(into)
        if node is None:
            continue
        if worth > best.setdefault(into, _weight(work.prefer, node)):
            try:
                code = under_name(tool, node.name)
            except ValueError:  # its code uses that name already: the node keeps its code
                continue
            best[into] = worth
            found[into] = replace(code, description=node.tool.description)
    return found


def _weight(prefer: Prefer, node: Node) -> float:
    return _worth(prefer, node.support, node.stats)


def _worth(prefer: Prefer, support: int, stats: Stats) -> float:
    if prefer == "higher_support":
        return float(support)
    return (stats.successes + 1) / (stats.calls + 2)  # one lucky call outweighs no long record


def _canonical(
    work: GroupWork,
    graph: ToolGraph,
    ordered: Sequence[Candidate],
    near: Mapping[Key, list[tuple[Key, float]]],
    ids: Mapping[Key, int],
    renamed: Mapping[int, str],
) -> tuple[dict[str, str], ...]:
    """For each rollout: name of a tool that it made or called -> the name of its class."""
    classes = _classes(work, graph, ordered, near)
    by_key = {one.key: one.tool for one in ordered}
    taken = {*graph.names, *work.reserved, *renamed.values()}
    names: dict[Key, str] = {}

    def name_of(root: Key) -> str:
        if root[0] < 0:
            return graph.by_id[root[1]].name
        if root not in names:
            own = renamed.get(ids.get(root, -1))
            names[root] = free_name(by_key[root], taken) if own is None else own
            taken.add(names[root])
        return names[root]

    told: dict[Key, str] = {one.key: name_of(classes[one.key]) for one in ordered}
    answers = []
    for place, rollout in enumerate(work.rollouts):
        answer: dict[str, str] = {}
        mine = {tool.name for tool in rollout.candidates}
        for number, tool in enumerate(rollout.candidates):
            if (place, number) in told:
                answer.setdefault(tool.name, told[place, number])
        for name in rollout.used:
            if name not in mine and (node := graph.node(name)) is not None:
                answer[name] = name_of(classes.get((-1, node.id), (-1, node.id)))
        answers.append(answer)
    return tuple(answers)
