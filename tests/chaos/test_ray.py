"""Workers on a Ray cluster of two nodes: a worker, a node and the coordinator are killed."""

from __future__ import annotations

import os
import signal
import time
from datetime import datetime
from pathlib import Path

import psutil
import pytest

from tests.chaos.crowd import Crowd
from tests.chaos.judge import judge
from tests.chaos.workload import VARIABLE, Workload
from tests.support.ray_cluster import ENVIRONMENT, RayCluster, ray_cluster
from tests.support.waiting import blocks

KILLED_S, SILENT_S = 2.0, 15.0
"""Longest time until the work of a killed worker and of a dead node is at another worker."""
MIDDLE_S = 3.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def handed_on_after(crowd: Crowd, harmed: float, workers: int) -> float:
    """Seconds until the work of all harmed workers was at others."""

    def rows() -> list[tuple[float, int]]:
        found = [
            (datetime.fromisoformat(row["timestamp"]).timestamp() - harmed, row["in_flight"])
            for row in crowd.logged("work_handed_on")
        ]
        return [one for one in found if one[0] > 0]

    crowd.run.until(lambda: len(rows()) == workers, "the work elsewhere")
    print(rows())
    assert sum(in_flight for _, in_flight in rows()) > 0, "the harm came too late"
    return max(seconds for seconds, _ in rows())


def nodes_of(crowd: Crowd, cluster: RayCluster) -> dict[str, int]:
    """Raylet of each ready worker, by the worker's name."""
    return {name: cluster.node_of(pid) for name, pid in crowd.workers.items()}


def test_deaths_on_a_cluster_lose_repeat_and_duplicate_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = Workload(calls=(8, 12), tokens=(64, 96), call_s=(0.1, 0.6))
    crowd = Crowd(tmp_path, long, groups=8, size=4, places=32, rate=20.0, workers=2)
    crowd.run.patience = 240.0
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    # What `ray start` gives to a node, its workers have.
    monkeypatch.setenv(VARIABLE, crowd.run.environment[VARIABLE])
    monkeypatch.setenv("PYTHONPATH", crowd.run.environment["PYTHONPATH"])
    with ray_cluster(num_cpus=4) as cluster:
        crowd.engine_options += ("--backend", "ray", "--ray-address", cluster.address)
        try:
            crowd.start()
            crowd.run.until(lambda: len(crowd.workers) == 2, "workers")
            assert set(nodes_of(crowd, cluster).values()) == {cluster.head, cluster.second}

            blocks(MIDDLE_S, "trajectories come into their middle")
            at = nodes_of(crowd, cluster)
            pids = dict(crowd.workers)
            (victim,) = (name for name in at if at[name] == cluster.head)
            harmed = time.time()
            os.kill(pids[victim], signal.SIGKILL)
            assert handed_on_after(crowd, harmed, 1) < KILLED_S

            # All work is on the second node now.
            crowd.run.until(lambda: len(crowd.workers) == 2, "a new worker")
            there = [node for node in nodes_of(crowd, cluster).values() if node == cluster.second]
            harmed = time.time()
            cluster.kill_second()
            assert handed_on_after(crowd, harmed, len(there)) < SILENT_S

            crowd.run.until(lambda: bool(crowd.workers), "a worker")
            left = list(crowd.workers.values())
            crowd.kill_engine()
            crowd.run.until(lambda: not any(map(psutil.pid_exists, left)), "the workers' end")
            crowd.start_engine()
            crowd.finish()
            figures = judge(crowd)
        finally:
            crowd.close()
    print(figures.to_json())
    assert figures.resumed >= 0.8 * figures.interrupted > 0, figures
