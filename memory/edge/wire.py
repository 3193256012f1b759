"""Converts protobuf to the memory's types and back; pure. Invalid messages raise BadWork."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from memory.errors import BadWork
from memory.graph.merging import Mode
from memory.types import (
    GroupMerged,
    GroupWork,
    Iteration,
    Node,
    Prefer,
    RolloutWork,
    Scoring,
    Stats,
    Tool,
)
from toolwright import json_data
from toolwright.memory.v1 import memory_pb2 as pb
from toolwright.text.schemas import in_order

MODES: Mapping[int, Mode] = {
    pb.MERGE_MODE_UNSPECIFIED: "greedy",
    pb.MERGE_MODE_GREEDY: "greedy",
    pb.MERGE_MODE_UNION_FIND: "union_find",
}
SCORINGS: Mapping[int, Scoring] = {
    pb.SCORING_HYBRID: "hybrid",
    pb.SCORING_GRAPHRAG: "graphrag",
}
LARGEST = (1 << 53) - 1


def tool_from_proto(node: pb.ToolNode) -> Tool:
    """A candidate. Raises BadWork."""
    try:
        schema = in_order(json_data.mapping(node.arguments_schema))
        json_data.check_depth(schema)
    except (ValueError, RecursionError) as error:
        raise BadWork(f"the schema of {node.name[:100]!r} cannot be read: {error}") from error
    return Tool(
        name=node.name,
        description=node.description,
        code=node.code,
        arguments=node.arguments,
        returns=node.returns,
        schema=schema,
        inputs=tuple(node.inputs),
    )


def node_to_proto(node: Node) -> pb.ToolNode:
    tool, stats = node.tool, node.stats
    out = pb.ToolNode(
        name=tool.name,
        description=tool.description,
        code=tool.code,
        arguments_schema=json_data.struct(tool.schema),
        uses=stats.calls,
        canonical=tool.name,
        arguments=tool.arguments,
        returns=tool.returns,
        inputs=tool.inputs,
        id=node.id,
        aliases=node.aliases,
        support=node.support,
        successes=stats.successes,
        seconds=stats.seconds,
        created_step=node.created_step,
        source=node.source,
    )
    if stats.last_used >= 0:
        out.last_used = stats.last_used
    return out


def work_from_proto(
    request: pb.MergeGroupRequest, *, delta: float, mode: Mode, prefer: Prefer
) -> GroupWork:
    """delta, mode: the service's own, for a request that leaves them out. Raises BadWork."""
    step = _count("step", request.step)
    return GroupWork(
        group=request.group,
        step=step,
        rollouts=tuple(_rollout(one, step) for one in request.rollouts),
        registers=request.registers,
        delta=request.delta if request.HasField("delta") else delta,
        mode=_mode(request.mode) if request.mode else mode,
        prefer=prefer,
        check=request.merge_check,
        reserved=frozenset(request.reserved),
        counts={name: _count(name, count) for name, count in sorted(request.counts.items())},
        iteration=iteration(request.iteration) if request.HasField("iteration") else None,
    )


def work_of_trajectory(
    request: pb.MergeRequest, *, delta: float, mode: Mode, prefer: Prefer
) -> GroupWork:
    """A trajectory's graph, registered whole. Raises BadWork."""
    rollout = RolloutWork(
        trajectory=request.trajectory_id,
        candidates=tuple(map(tool_from_proto, request.nodes)),
        edges=_edges(request.edges),
    )
    return GroupWork(
        group=f"trajectory/{request.trajectory_id}",
        step=0,
        rollouts=(rollout,),
        registers=request.trajectory_id,
        delta=delta,
        mode=mode,
        prefer=prefer,
    )


def work_of_tool(
    request: pb.RegisterRequest, *, delta: float, mode: Mode, prefer: Prefer
) -> GroupWork:
    """One tool. Raises BadWork."""
    rollout = RolloutWork(
        trajectory=request.trajectory_id, candidates=(tool_from_proto(request.tool),)
    )
    return GroupWork(
        group=f"tool/{request.trajectory_id}/{request.tool.name}",
        step=0,
        rollouts=(rollout,),
        registers=request.trajectory_id,
        delta=delta,
        mode=mode,
        prefer=prefer,
    )


def merged_to_proto(work: GroupWork, merged: GroupMerged) -> pb.MergeGroupResponse:
    return pb.MergeGroupResponse(
        version=merged.version,
        rollouts=[
            pb.CanonicalTools(trajectory_id=rollout.trajectory, names=names)
            for rollout, names in zip(work.rollouts, merged.canonical, strict=True)
        ],
        refused=refused_to_proto(merged),
        registered=merged.registered,
    )


def refused_to_proto(merged: GroupMerged) -> list[pb.RefusedTool]:
    return [
        pb.RefusedTool(trajectory_id=one.trajectory, name=one.name, reason=one.reason)
        for one in merged.refused
    ]


def scoring_from_proto(number: int, otherwise: Scoring) -> Scoring:
    """Raises BadWork for one that is not known here."""
    if number == pb.SCORING_UNSPECIFIED:
        return otherwise
    if number not in SCORINGS:
        raise BadWork(f"scoring {number} is not known here")
    return SCORINGS[number]


LONGEST_WEIGHTS = 200


def weights(text: str) -> tuple[str, int]:
    """(lineage, step) of LINEAGE.STEP. Raises BadWork."""
    return _numbered("before_weights", text, "LINEAGE.STEP")


def iteration(text: str) -> Iteration:
    """The iteration RUN.STEP. Raises BadWork."""
    run, step = _numbered("iteration", text, "RUN.STEP")
    return Iteration(run=run, step=_count("the step of an iteration", step))


def _numbered(field: str, text: str, form: str) -> tuple[str, int]:
    name, dot, step = text[:LONGEST_WEIGHTS].rpartition(".")
    known = name and len(text) <= LONGEST_WEIGHTS and step.isascii() and step.isdigit()
    if not dot or not known or "/" in name:
        raise BadWork(f"{field} = {text[:LONGEST_WEIGHTS]!r}: write {form}")
    return name, int(step)


def share(name: str, value: float) -> float:
    """A number from 0 to 1. Raises BadWork."""
    if not 0 <= value <= 1:  # false for NaN, too
        raise BadWork(f"{name} is {value}, and not from 0 to 1")
    return value


def _mode(number: int) -> Mode:
    if number not in MODES:
        raise BadWork(f"mode {number} is not known here")
    return MODES[number]


def _rollout(rollout: pb.RolloutTools, step: int) -> RolloutWork:
    used: dict[str, Stats] = {}
    for use in rollout.uses:
        stats = Stats(
            calls=_count("calls", use.calls),
            successes=_count("successes", use.successes),
            last_used=step,
            seconds=use.seconds,
        )
        used[use.name] = used[use.name] + stats if use.name in used else stats
    return RolloutWork(
        trajectory=rollout.trajectory_id,
        candidates=tuple(map(tool_from_proto, rollout.candidates)),
        used=used,
        edges=_edges(rollout.edges),
    )


def _edges(edges: Iterable[Any]) -> tuple[tuple[str, str, int], ...]:
    found = []
    for edge in edges:
        count = getattr(edge, "count")  # noqa: B009 - a message's field, not its method
        if not math.isfinite(count) or count != int(count) or not 0 <= count <= LARGEST:
            raise BadWork(f"an edge was seen {count} times, which is no count")
        found.append((getattr(edge, "from"), edge.to, int(count)))
    return tuple(found)


def _count(name: str, value: int) -> int:
    if value > LARGEST:
        raise BadWork(f"{name} is {value}, above {LARGEST}")
    return int(value)
