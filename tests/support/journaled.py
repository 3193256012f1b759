"""Logs of attempts as the records and the groups that an engine makes of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from engine.core.trajectory.events import AnyEvent
from engine.core.trajectory.record import Identity, record
from engine.core.trajectory.state import fold
from engine.serving.journal.journal import Journal
from toolwright.types import Task, Trajectory, WeightVersion
from toolwright.wire import serialize, trajectory_to_proto


def identity_of(name: str, **fields: Any) -> Identity:
    """name: of the trajectory, GROUP-INDEX."""
    group, _, index = name.rpartition("-")
    given = {"attempt": 0, "task": Task(id="q"), "tokenizer_hash": "toy", **fields}
    return Identity(trajectory_id=name, group_id=group, index=int(index), **given)


def recorded(name: str, events: Sequence[AnyEvent], **fields: Any) -> Trajectory:
    return record(fold(events), identity_of(name, **fields))


async def store_group(
    journal: Journal,
    position: int,
    logs: Mapping[str, Sequence[AnyEvent]],
    *,
    version: WeightVersion,
    change: Callable[[Trajectory], Trajectory] = lambda one: one,
    task: Task | None = None,
    turned_away: bool = False,
) -> int:
    """Sequence number of a group whose members have these logs, by their names. change: applied to
    each record before it is stored."""
    members = []
    for name, events in logs.items():
        for event in events:
            journal.append(f"{name}/b1r0a0", [event])
        await journal.flush()
        one = change(recorded(name, events, task=task or Task(id="q")))
        members.append(serialize(trajectory_to_proto(one)))
    return await journal.add_group(
        position=position,
        identity=f"g{position:07d}",
        members=members,
        attempts=[f"{name}/b1r0a0" for name in logs],
        versions=[version],
        turned_away=turned_away,
    )
