"""A train lane that turns groups away, in a process of its own: `python -m ... JOURNAL [drain]`.

Its groups take some milliseconds and earn what their position says. A learner that is never slow
takes every batch at once. With `drain` it ends on its own after some groups.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from engine.core.tasks import BadRows, DrawnTask
from engine.core.trajectory.events import Ended
from engine.serving.admission.dynamic_sampling import GroupFilter
from engine.serving.admission.mixing import Mixture
from engine.serving.admission.places import Places
from engine.serving.admission.train import TrainLane
from engine.serving.crew.crew import GroupAssignment
from engine.serving.journal.journal import Journal
from toolwright.recipe import DynamicSampling, Run
from toolwright.types import SamplingParams, Status, StopReason, Task, Trajectory

BATCH, SIZE, MOST = 3, 2, 3
LAST_GROUPS = 20


def earned(position: int, index: int) -> float:
    """One position of four varies."""
    return float(index) if random.Random(position).random() < 0.25 else 1.0


def whole_group(position: int) -> Sequence[Trajectory]:
    name = f"g{position:07d}"
    return [
        Trajectory(
            id=f"{name}-{index}", group_id=name, index=index, task=Task(id=name), sequences=(),
            status=Status.COMPLETED, stop_reason=StopReason.ANSWERED,
            reward=earned(position, index),
        )
        for index in range(SIZE)
    ]  # fmt: skip


class FakeCrew:
    """Its members' logs are in the journal before the group is whole, as in an engine."""

    def __init__(self, journal: Journal, places: Places) -> None:
        self._journal = journal
        self._places = places

    async def run_group(self, group: GroupAssignment) -> list[Any]:
        members = whole_group(int(group.group_id[1:]))
        async with self._places:
            group.queued.set()
            await asyncio.sleep(random.uniform(0.001, 0.02))
        out = []
        for one in members:
            attempt = f"{one.id}/b{self._journal.boot}r0a0"
            self._journal.append(attempt, [Ended(reason=StopReason.ANSWERED)])
            out.append(SimpleNamespace(trajectory=one, attempt=attempt, serialized=None))
        return out


class Positions:
    """A task at every position."""

    rows = None

    async def at(self, position: int) -> DrawnTask:
        return DrawnTask(position=position, task=Task(id=str(position)))


async def main(file: Path, *, drain: bool) -> None:
    journal = Journal(file)
    places = Places(4)
    run = Run.model_validate(
        {
            "name": "r", "folder": ".", "steps": 10**6, "groups_per_step": BATCH,
            "group_size": SIZE,
        }
    )  # fmt: skip
    lane = TrainLane(
        run=run,
        steps=10**6,
        crews={"": cast("Any", FakeCrew(journal, places))},
        places=places,
        sources={"": cast("Any", Positions())},
        mixture=Mixture({"": BATCH}),
        journal=journal,
        sampling=SamplingParams(),
        bad_rows=BadRows(0),
        on_trajectory=lambda _one: None,
        group_filter=GroupFilter(DynamicSampling(max_gen_batches=MOST), groups_per_step=BATCH),
    )
    print("admits", flush=True)
    admitting = asyncio.create_task(lane.run())
    last = journal.counts.last_sequence + LAST_GROUPS
    while not (drain and journal.counts.last_sequence >= last):
        lane.changed(journal.counts.accepted // run.batch)
        await asyncio.sleep(0.002)
    lane.drain()
    await admitting
    await journal.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), drain=sys.argv[2:] == ["drain"]))
