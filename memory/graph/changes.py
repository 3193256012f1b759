"""A change as bytes and back: canonical JSON, so that the same change is the same bytes."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

from memory.errors import Unusable
from memory.types import (
    Change,
    GroupWork,
    Iteration,
    Joined,
    NewNode,
    Refused,
    RolloutWork,
    Stats,
    Tool,
    Waiting,
)

Json = Any


def to_bytes(change: Change) -> bytes:
    """Keys sorted, embeddings as base64 of float32, ids as text where they are keys."""
    return _dumped(_to_json(change))


def _to_json(change: Change) -> Json:
    data: dict[str, Json] = {
        "group": change.group,
        "step": change.step,
        "asked": change.asked,
        "delta": change.delta,
        "unions": change.unions,
        "made": [
            {
                "tool": tool_to_json(made.tool),
                "vector": base64.b64encode(made.vector).decode(),
                "source": made.source,
            }
            for made in change.made
        ],
        "joined": [[one.name, one.into, one.inputs] for one in change.joined],
        "replaced": {key: tool_to_json(tool) for key, tool in change.replaced.items()},
        "edges": change.edges,
        "used": {key: stats_to_json(stats) for key, stats in change.used.items()},
        "counts": dict(change.counts),
        "canonical": [dict(names) for names in change.canonical],
        "refused": [[one.trajectory, one.name, one.reason] for one in change.refused],
        "registered": dict(change.registered),
    }
    # Left out if empty: a change without them keeps the bytes of older releases.
    if change.waits is not None:
        data["waits"] = waiting_to_json(change.waits)
    if change.begins is not None:
        data["begins"] = iteration_to_json(change.begins)
        data["parts"] = [_to_json(part) for part in change.parts]
    return data


def from_bytes(data: bytes) -> Change:
    """What `to_bytes` made. Raises ValueError, KeyError or TypeError for anything else."""
    return _from_json(json.loads(data))


def _from_json(read: Mapping[str, Json]) -> Change:
    return Change(
        group=read["group"],
        step=read["step"],
        asked=read["asked"],
        delta=read["delta"],
        unions=tuple((gone, into) for gone, into in read["unions"]),
        made=tuple(
            NewNode(
                tool=tool_from_json(made["tool"]),
                vector=base64.b64decode(made["vector"], validate=True),
                source=made["source"],
            )
            for made in read["made"]
        ),
        joined=tuple(
            Joined(name=name, into=into, inputs=tuple(inputs))
            for name, into, inputs in read["joined"]
        ),
        replaced={int(key): tool_from_json(tool) for key, tool in read["replaced"].items()},
        edges=tuple((one, other, count) for one, other, count in read["edges"]),
        used={int(key): stats_from_json(stats) for key, stats in read["used"].items()},
        counts=read["counts"],
        canonical=tuple(read["canonical"]),
        refused=tuple(
            Refused(trajectory=trajectory, name=name, reason=reason)
            for trajectory, name, reason in read["refused"]
        ),
        registered=read["registered"],
        waits=waiting_from_json(read["waits"]) if "waits" in read else None,
        begins=iteration_from_json(read["begins"]) if "begins" in read else None,
        parts=tuple(map(_from_json, read.get("parts", ()))),
    )


@contextmanager
def read_as(version: int) -> Iterator[None]:
    """Unusable in place of what `from_bytes` or a fold says to bytes that are no change: a store is
    a stranger's, or another release's."""
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise Unusable(
            f"change {version} cannot be read: {error!r:.200}: it is not what this release writes"
        ) from error


def asked(work: GroupWork) -> str:
    """SHA-256 of what the group did: its rollouts, and which of them registers. Neither the step
    nor the rules of merging are in it: who was started again meanwhile still knows the group."""
    return sha256(_dumped(_done(work))).hexdigest()


def _done(work: GroupWork) -> dict[str, Json]:
    return {
        "group": work.group,
        "registers": work.registers,
        "rollouts": [
            {
                "trajectory": one.trajectory,
                "candidates": [tool_to_json(tool) for tool in one.candidates],
                "used": {name: stats_to_json(stats) for name, stats in one.used.items()},
                "edges": one.edges,
            }
            for one in work.rollouts
        ],
    }


def waiting_to_json(waiting: Waiting) -> Json:
    work = waiting.work
    return {
        **_done(work),
        "step": work.step,
        "iteration": None if work.iteration is None else iteration_to_json(work.iteration),
        "delta": work.delta,
        "mode": work.mode,
        "prefer": work.prefer,
        "check": work.check,
        "reserved": sorted(work.reserved),
        "vectors": [base64.b64encode(vector).decode() for vector in waiting.vectors],
    }


def waiting_from_json(read: Mapping[str, Json]) -> Waiting:
    rollouts = tuple(
        RolloutWork(
            trajectory=one["trajectory"],
            candidates=tuple(map(tool_from_json, one["candidates"])),
            used={name: stats_from_json(stats) for name, stats in one["used"].items()},
            edges=tuple((first, second, count) for first, second, count in one["edges"]),
        )
        for one in read["rollouts"]
    )
    work = GroupWork(
        group=read["group"],
        step=read["step"],
        rollouts=rollouts,
        registers=read["registers"],
        delta=read["delta"],
        mode=read["mode"],
        prefer=read["prefer"],
        check=read["check"],
        reserved=frozenset(read["reserved"]),
        iteration=iteration_from_json(read["iteration"]) if read["iteration"] else None,
    )
    vectors = tuple(base64.b64decode(text, validate=True) for text in read["vectors"])
    return Waiting(work=work, vectors=vectors)


def iteration_to_json(iteration: Iteration) -> Json:
    return [iteration.run, iteration.step]


def iteration_from_json(data: Json) -> Iteration:
    run, step = data
    return Iteration(run=run, step=step)


def tool_to_json(tool: Tool) -> Json:
    return {
        "name": tool.name,
        "description": tool.description,
        "code": tool.code,
        "arguments": tool.arguments,
        "returns": tool.returns,
        "schema": tool.schema,
        "inputs": tool.inputs,
    }


def tool_from_json(data: Mapping[str, Json]) -> Tool:
    return Tool(**{**data, "inputs": tuple(data["inputs"])})


def stats_to_json(stats: Stats) -> Json:
    return [stats.calls, stats.successes, stats.last_used, stats.seconds]


def stats_from_json(data: Json) -> Stats:
    calls, successes, last_used, seconds = data
    return Stats(calls=calls, successes=successes, last_used=last_used, seconds=seconds)


def _dumped(data: Json) -> bytes:
    return json.dumps(data, sort_keys=True, separators=(",", ":")).encode()
