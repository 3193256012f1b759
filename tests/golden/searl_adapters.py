"""Golden examples of SEARL's memory and of its recipe."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from memory.graph.graph import EMPTY
from memory.graph.merging import Mode
from memory.search import ranking, traversal
from memory.search.text import TextIndex, Texts
from recipes.searl import plan, rewards, steps, subgraph
from tests.support.tool_memory import decided, registering, tool


def _merge(
    old_nodes: Sequence[tuple[str, Sequence[float]]],
    old_edges: Sequence[tuple[str, str, int]],
    new_nodes: Sequence[tuple[str, Sequence[float]]],
    new_edges: Sequence[tuple[str, str, int]],
    delta: float,
    mode: Mode,
) -> Any:
    vectors = dict([*old_nodes, *new_nodes])
    old = registering("old", *(tool(name) for name, _ in old_nodes), edges=old_edges, delta=1)
    new = registering(
        "new", *(tool(name) for name, _ in new_nodes), edges=new_edges, delta=delta, mode=mode
    )
    _, graph = decided(EMPTY, old, vectors)
    change, graph = decided(graph, new, vectors)
    nodes = {node.id: node.name for node in graph.nodes}
    gone = {one: into for one, into in change.registered.items() if one != into}
    return {
        "nodes": list(nodes.values()),
        "alias": gone,
        "edges": [[nodes[one], nodes[other], count] for (one, other), count in graph.edges.items()],
    }


def _retrieval(
    docs: Sequence[str], query: str, semantic: Sequence[float], alpha: float, k: int
) -> Any:
    text = TextIndex(Texts(docs), len(docs)).scores(query)
    hybrid = ranking.hybrid(text, np.array(semantic), alpha)
    return {"text": text.tolist(), "hybrid": hybrid.tolist(), "top": ranking.best(hybrid, k)}


def _walk(
    scores: Mapping[str, float], edges: Sequence[tuple[str, str]], k: int, **settings: Any
) -> Any:
    names = list(scores)
    neighbours: dict[int, set[int]] = {}
    for one, other in ((names.index(a), names.index(b)) for a, b in edges):
        neighbours.setdefault(one, set()).add(other)
        neighbours.setdefault(other, set()).add(one)
    found = traversal.walk(np.array(list(scores.values())), neighbours, k=k, **settings)
    return [[names[place], score] for place, score in found]


def _plan(text: str, max_subtasks: int, **settings: Any) -> Any:
    try:
        found = plan.parse(text, max_subtasks, **settings)
    except plan.NoPlan as why:
        return {"ok": False, "reason": why.reason}
    return {
        "ok": True,
        "nodes": list(found.nodes),
        "edges": [list(edge) for edge in found.edges],
        "order": list(found.order),
        "titles": {str(node): title for node, title in found.titles.items()},
        "n_steps": {str(node): len(lines) for node, lines in found.steps.items()},
    }


def _format(text: str) -> Any:
    found = steps.violations(text)
    return {"ok": not found, "violations": found}


def _best(outcome: Sequence[float], step_rewards: Sequence[Sequence[float]]) -> int:
    return rewards.best_trajectory(outcome, step_rewards)


def _subgraph(
    nodes: Sequence[int],
    edges: Sequence[tuple[int, int]],
    phi: Mapping[str, Sequence[str]],
    mode: subgraph.Holes,
) -> Any:
    tools, found = subgraph.tool_graph(
        nodes, edges, {int(node): names for node, names in phi.items()}, mode
    )
    return {"nodes": tools, "edges": [list(edge) for edge in found]}


SEARL_ADAPTERS: dict[str, Callable[..., Any]] = {
    "searl.memory_merge": _merge,
    "searl.hybrid_retrieval": _retrieval,
    "searl.graph_traversal_topk": _walk,
    "searl.plan_parse": _plan,
    "searl.step_format": _format,
    "searl.step_reward": rewards.step_reward,
    "searl.step_reward_released": rewards.step_reward_released,
    "searl.outcome_released": rewards.outcome_released,
    "searl.best_trajectory": _best,
    "searl.plan_to_tool_graph": _subgraph,
}
