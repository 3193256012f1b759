"""Tools and groups' works for tests of the tool memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from memory.admission import admitted
from memory.graph.decide import Alike, decide
from memory.graph.fold import Builder
from memory.graph.graph import ToolGraph
from memory.store import Log, pages
from memory.store.volatile import VolatileLog
from memory.types import Change, GroupWork, RolloutWork, Stats, Tool


def tool(name: str, description: str = "", **parts: Any) -> Tool:
    parts.setdefault("code", f"def {name}(x=0):\n    return x\n")
    return Tool(name=name, description=description or name, **parts)


def rollout(trajectory: str, *tools: Tool, **parts: Any) -> RolloutWork:
    return RolloutWork(trajectory=trajectory, candidates=tools, **parts)


def registering(group: str, *tools: Tool, **parts: Any) -> GroupWork:
    """A group of one rollout, which registers what it made."""
    own = {name: parts.pop(name) for name in ("used", "edges") if name in parts}
    trajectory = f"{group}/0"
    parts.setdefault("step", 1)
    return GroupWork(
        group=group,
        rollouts=(rollout(trajectory, *tools, **own),),
        registers=trajectory,
        **parts,
    )


def pointing(vectors: Mapping[str, Sequence[float]]) -> Any:
    """An embedder of tools: the vector of each name."""

    def embed(tools: Sequence[Tool]) -> np.ndarray[Any, np.dtype[np.float32]]:
        return np.array([vectors[one.name] for one in tools], np.float32)

    return embed


def decided(
    graph: ToolGraph,
    work: GroupWork,
    vectors: Mapping[str, Sequence[float]],
    alike: Alike | None = None,
) -> tuple[Change, ToolGraph]:
    """The change that a work makes, and the graph after it."""
    candidates, refused = admitted(work, pointing(vectors), None)
    change = decide(work, graph, candidates, refused, alike)
    builder = Builder(graph)
    builder.apply(change)
    return change, builder.graph()


def calls(number: int = 1, successes: int | None = None) -> Stats:
    return Stats(calls=number, successes=number if successes is None else successes, seconds=0.5)


def without_snapshots(log: Log) -> VolatileLog:
    """A copy of the changes alone."""
    copy = VolatileLog()
    for place, data in enumerate(pages(log, 0)):
        copy.append(str(place), data, place)
    return copy
