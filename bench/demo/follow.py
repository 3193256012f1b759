"""Follows a run folder while engine and learner write to it, and keeps the status current."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from bench.demo import records
from bench.demo.progress import Status, seconds_left
from bench.demo.records import Tail

INTERVAL_S = 0.5
CURVE = "curve-sampled"


async def follow_training(
    folder: Path, status: Status, *, runs_after: int = 0, warm_ups_after_s: float = 0.0
) -> None:
    """Until it is cancelled. Runs that come after this one are taken to be as long as it is."""
    steps, evaluations = Tail(folder / records.STEPS), Tail(folder / records.EVALUATIONS)
    stamps: list[float] = []
    first_evaluation = 0.0
    while True:
        for row in evaluations.read():
            found = records.evaluation(row)
            if found.step == 0:
                # Suites of one version run side by side.
                first_evaluation = max(first_evaluation, found.seconds)
            if found.suite == CURVE:
                status.success, status.success_step = found.success, found.step
        for row in steps.read():
            step = records.step(row)
            stamps.append(time.monotonic())
            status.step, status.reward = step.step, step.reward
            status.recent.append(step.reward)
            status.staleness = step.values.get("staleness_mean")
            status.tokens_per_second = step.tokens_per_second
        # The last version is evaluated like the first.
        last_evaluation = first_evaluation
        if status.step == status.steps and stamps:
            last_evaluation = max(0.0, stamps[-1] + first_evaluation - time.monotonic())
        left = status.steps - status.step + runs_after * status.steps
        evaluations_after = last_evaluation + runs_after * 2 * first_evaluation
        status.left_s = seconds_left(stamps, left, evaluations_after + warm_ups_after_s)
        await asyncio.sleep(INTERVAL_S)


async def follow_warm_up(folder: Path, status: Status) -> None:
    """Until it is cancelled."""
    tail = Tail(folder / "sft" / "sft.jsonl")
    while True:
        for row in tail.read():
            status.step = int(row["step"])
            status.tokens_per_second = float(row["tokens_per_s"])
        await asyncio.sleep(INTERVAL_S)
