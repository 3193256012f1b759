"""A version as bytes and back, so that a start need not fold the whole log.

A snapshot names the change that it follows, and its bytes have a checksum. A snapshot that is torn,
or belongs to another log, is not used. Then older snapshots are tried, and at last the log itself.
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import numpy as np

from memory.graph.changes import (
    stats_from_json,
    stats_to_json,
    tool_from_json,
    tool_to_json,
    waiting_from_json,
    waiting_to_json,
)
from memory.graph.graph import ToolGraph
from memory.types import Node

_MAGIC = b"tool memory 1\n"
_DIGEST = 32


class NoSnapshot(ValueError):
    """The bytes are not a complete snapshot, or they belong to another log."""


def to_bytes(graph: ToolGraph, tip: bytes) -> bytes:
    """tip: bytes of the change that made this version."""
    told = {
        "version": graph.version,
        "tip": sha256(tip).hexdigest(),
        "apart": graph.apart,
        "shape": list(graph.vectors.shape),
        "content": graph.content,
        "waiting": [waiting_to_json(one) for one in graph.waiting.values()],
        "begun": {run: list(steps.items()) for run, steps in graph.begun.items()},
        "edges": [[one, other, count] for (one, other), count in graph.edges.items()],
    }
    # One line for each node: a single write of ten megabytes would hold up other threads.
    lines = [json.dumps(told), *(json.dumps(_node(node)) for node in graph.nodes)]
    text = "\n".join(lines).encode()
    body = len(text).to_bytes(8, "little") + text + graph.vectors.astype("<f4").tobytes()
    return _MAGIC + sha256(body).digest() + body


def from_bytes(data: bytes, tip: bytes) -> ToolGraph:
    """Raises NoSnapshot."""
    head = len(_MAGIC) + _DIGEST
    body = memoryview(data)[head:]
    if data[: len(_MAGIC)] != _MAGIC or sha256(body).digest() != data[len(_MAGIC) : head]:
        raise NoSnapshot("torn, or of another kind")
    size = int.from_bytes(body[:8], "little")
    first, *lines = bytes(body[8 : 8 + size]).decode().split("\n")
    told = json.loads(first)
    if told["tip"] != sha256(tip).hexdigest():
        raise NoSnapshot("of another log")
    nodes = [_read(json.loads(line)) for line in lines]
    edges = {(one, other): count for one, other, count in told["edges"]}
    sets: dict[int, set[int]] = {}
    for one, other in edges:
        sets.setdefault(one, set()).add(other)
        sets.setdefault(other, set()).add(one)
    neighbours = {node_id: frozenset(others) for node_id, others in sets.items()}
    return ToolGraph(
        by_id={node.id: node for node in nodes},
        vectors=np.frombuffer(body[8 + size :], dtype="<f4")
        .astype(np.float32)
        .reshape(told["shape"]),
        names={name: node.id for node in nodes for name in (node.name, *node.aliases)},
        edges=edges,
        neighbours=neighbours,
        apart=told["apart"],
        version=told["version"],
        # Absent in snapshots of older releases, which had no iterations.
        content=told.get("content", told["version"]),
        waiting={one.work.group: one for one in map(waiting_from_json, told.get("waiting", ()))},
        begun={run: dict(steps) for run, steps in told.get("begun", {}).items()},
    )


def _node(node: Node) -> dict[str, object]:
    return {
        "id": node.id,
        "tool": tool_to_json(node.tool),
        "aliases": node.aliases,
        "support": node.support,
        "created_step": node.created_step,
        "source": node.source,
        "stats": stats_to_json(node.stats),
    }


def _read(data: dict[str, Any]) -> Node:
    return Node(
        **{
            **data,
            "tool": tool_from_json(data["tool"]),
            "aliases": tuple(data["aliases"]),
            "stats": stats_from_json(data["stats"]),
        }
    )
