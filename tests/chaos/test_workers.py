"""Workers of an engine are killed and stopped at seeded points under a crowd of trajectories.

The quick version runs with all slow tests. `CHAOS=full pytest tests/chaos/test_workers.py -s` kills
fifty times under 256 trajectories and prints what it cost.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from random import Random

import pytest

from tests.chaos.conftest import FULL
from tests.chaos.crowd import Crowd
from tests.chaos.judge import Figures, judge
from tests.chaos.workload import Workload
from tests.support.waiting import blocks

KILLS = 50 if FULL else 3
LEAST_RESUMED = 0.95
KILLED_S, STOPPED_S = 2.0, 15.0
"""Longest time until the work of a killed and of a stopped worker is at another one."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800 if FULL else 200)]


def crowd_of(folder: Path, workers: int = 2) -> Crowd:
    if FULL:
        long = Workload(calls=(8, 12), tokens=(64, 128), call_s=(1.0, 6.0))
        made = Crowd(folder, long, groups=64, size=8, places=256, rate=25.0, workers=workers)
    else:
        short = Workload(calls=(4, 6), tokens=(48, 64), call_s=(0.1, 0.6))
        made = Crowd(folder, short, groups=8, size=4, places=32, rate=20.0, workers=workers)
    made.run.patience = 1800.0 if FULL else 180.0
    return made


def harmed_again_and_again(
    crowd: Crowd, harm: Callable[[int], None], *, seed: int, times: int
) -> tuple[Figures, list[float]]:
    """Harms a random worker; ends the run and judges it. Returns the figures, and the seconds until
    each worker's work was handed on."""
    dice, harmed = Random(seed), {}
    crowd.start()
    crowd.run.until(lambda: len(crowd.workers) == 2, "workers")
    for _ in range(times):
        crowd.run.until(lambda: bool(crowd.workers), "a worker")
        time.sleep(dice.uniform(1.5, 4.0))
        if crowd.complete:
            break
        name = dice.choice(sorted(crowd.workers))
        harmed[name] = time.time()
        harm(crowd.workers[name])
        crowd.run.until(
            lambda: len(crowd.logged("work_handed_on")) == len(harmed), "the work elsewhere"
        )
    crowd.finish()
    handed = crowd.logged("work_handed_on")
    assert {row["worker"] for row in handed} == harmed.keys()
    seconds = [_time_of(row) - harmed[row["worker"]] for row in handed]
    interrupted = sum(row["in_flight"] for row in handed)
    restarts = sum(
        log.read_text(encoding="utf-8").count('"attempt_failed"')
        for log in crowd.run_folder.glob("worker.*.log")
    )
    figures = judge(crowd)
    print(
        json.dumps(
            {
                **figures.to_json(),
                "kills": len(harmed),
                "interrupted": interrupted,
                "restarted": restarts,
                "handed_on_s": [round(one, 2) for one in seconds],
            }
        )
    )
    assert interrupted > len(harmed), "the harm came too late"
    assert restarts <= (1 - LEAST_RESUMED) * interrupted + 1
    return figures, seconds


def _time_of(row: dict[str, str]) -> float:
    return datetime.fromisoformat(row["timestamp"]).timestamp()


def test_killed_workers_cost_no_trajectory_and_repeat_no_effect(tmp_path: Path) -> None:
    crowd = crowd_of(tmp_path)
    try:
        _, seconds = harmed_again_and_again(
            crowd, lambda pid: os.kill(pid, signal.SIGKILL), seed=11, times=KILLS
        )
    finally:
        crowd.close()
    assert max(seconds) < KILLED_S


def test_a_killed_coordinator_takes_its_workers_along(tmp_path: Path) -> None:
    """The next life goes on inside the trajectories, with workers of its own."""
    crowd = crowd_of(tmp_path)
    try:
        crowd.start()
        crowd.run.until(lambda: len(crowd.workers) == 2, "workers")
        blocks(3.0, "trajectories come into their middle")
        pids = list(crowd.workers.values())
        crowd.kill_engine()
        crowd.run.until(lambda: not any(map(_runs, pids)), "the workers' end")
        crowd.start_engine()
        crowd.finish()
        figures = judge(crowd)
    finally:
        crowd.close()
    assert figures.resumed >= 0.8 * figures.interrupted > 0, figures


def _runs(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_the_work_of_a_stopped_worker_goes_on_elsewhere(tmp_path: Path) -> None:
    crowd = crowd_of(tmp_path)
    try:
        _, seconds = harmed_again_and_again(
            crowd, lambda pid: os.kill(pid, signal.SIGSTOP), seed=12, times=1
        )
    finally:
        crowd.close()
    assert max(seconds) < STOPPED_S
