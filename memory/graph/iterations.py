"""How an iteration begins: the groups that waited are merged in a fixed order. Pure but for
`alike`.

SEARL registers tools at the end of an iteration (algorithm 1, lines 24 to 26), so all its rollouts
see one version of the memory. Here an iteration ends when a later one of its run begins.

Invariants
- Which groups are merged, and in which order, depends on their steps and names alone, never on the
  order in which they came.
- Groups of the iteration that begins, or of a later one of the same run, go on waiting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from memory.graph.decide import Alike, Candidate, decide
from memory.graph.fold import Builder
from memory.graph.graph import ToolGraph
from memory.types import Change, GroupWork, Iteration, RolloutWork, Waiting


def waiting(work: GroupWork, candidates: Sequence[Candidate]) -> Waiting:
    """The part of a group that is merged later, once its canonical names are decided. candidates:
    those that passed the guards."""
    kept = {one.key: one for one in candidates if one.registers}
    rollouts: list[RolloutWork] = []
    vectors: list[bytes] = []
    for place, rollout in enumerate(work.rollouts):
        numbers = [n for n in range(len(rollout.candidates)) if (place, n) in kept]
        own = tuple(rollout.candidates[number] for number in numbers)
        vectors += [kept[place, number].vector.astype("<f4").tobytes() for number in numbers]
        # The name of an unregistered tool must not lead to a node of the same name.
        gone = {tool.name for tool in rollout.candidates} - {tool.name for tool in own}
        rollouts.append(
            RolloutWork(
                trajectory=rollout.trajectory,
                candidates=own,
                used={name: stats for name, stats in rollout.used.items() if name not in gone},
                edges=tuple(edge for edge in rollout.edges if gone.isdisjoint(edge[:2]))
                if rollout.trajectory == work.registers
                else (),
            )
        )
    return Waiting(work=replace(work, rollouts=tuple(rollouts)), vectors=tuple(vectors))


def due(graph: ToolGraph, iteration: Iteration) -> list[Waiting]:
    """The groups that are merged when an iteration begins, in their order."""

    def goes_on_waiting(work: GroupWork) -> bool:
        own = work.iteration
        return own is not None and own.run == iteration.run and own.step >= iteration.step

    def order(one: Waiting) -> tuple[str, int, str]:
        own = one.work.iteration
        return (own.run if own else "", own.step if own else 0, one.work.group)

    return sorted(
        (one for one in graph.waiting.values() if not goes_on_waiting(one.work)), key=order
    )


def begun(graph: ToolGraph, iteration: Iteration, alike: Alike | None) -> Change:
    """The change that begins an iteration. alike: for groups that ask for a check."""
    builder = Builder(graph)
    parts: list[Change] = []
    for one in due(graph, iteration):
        work = one.work
        change = decide(work, builder.graph(), _candidates(one), (), alike if work.check else None)
        # The change under which the group waited already holds its answer and its counts.
        change = replace(change, canonical=(), counts={})
        builder.apply(change)
        parts.append(change)
    return Change(group=iteration.group, step=iteration.step, begins=iteration, parts=tuple(parts))


def _candidates(one: Waiting) -> list[Candidate]:
    keys = (
        (place, number)
        for place, rollout in enumerate(one.work.rollouts)
        for number in range(len(rollout.candidates))
    )
    return [
        Candidate(
            key=(place, number),
            tool=one.work.rollouts[place].candidates[number],
            vector=np.frombuffer(vector, dtype="<f4").astype(np.float32),
            registers=True,
        )
        for (place, number), vector in zip(keys, one.vectors, strict=True)
    ]
