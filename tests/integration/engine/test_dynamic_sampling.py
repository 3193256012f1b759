"""Groups without a signal are discarded and others sampled, in this life and the next."""

from __future__ import annotations

import random
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from engine.offline.inspect.state import run_state
from engine.serving.admission import dynamic_sampling as sieving
from engine.serving.admission.dynamic_sampling import GroupFilter
from tests.integration.engine.conftest import MakeWorld
from tests.integration.engine.turning_away import BATCH, MOST, earned, whole_group
from tests.support.engines import Running
from tests.support.waiting import blocks, until
from toolwright.recipe import DynamicSampling
from toolwright.types import WeightVersion

pytestmark = pytest.mark.quick

RUN = {"steps": 4, "groups_per_step": 2, "group_size": 2}
EVERY_THIRD = "task.metadata['number'] % 3 == 0"


def reward_file(folder: Path, varies: str) -> None:
    """Rewards 0 and 1 in the groups of which `varies` holds, and 1 in all others."""
    (folder / "my_reward.py").write_text(
        "def score(trajectory):\n"
        "    task = trajectory.task\n"
        f"    return float(trajectory.index % 2) if {varies} else 1.0\n",
        encoding="utf-8",
    )


async def ids_of(run: Running, version: WeightVersion, after: int, count: int = 2) -> list[str]:
    groups = await run.learner.lease(version, after=after, count=count)
    return [group.info.id for group in groups]


async def turned_away(run: Running) -> Mapping[str, Any]:
    return dict((await run.learner.status()).detail)


async def test_a_batch_is_full_of_groups_that_vary(world: MakeWorld) -> None:
    here = await world(run=RUN, task={"dynamic_sampling": {}})
    reward_file(here.folder, EVERY_THIRD)
    async with here.engine() as run:
        version = await run.learner.version()
        groups = await run.learner.lease(version, count=2)
        assert [g.info.id for g in groups] == ["g0000000", "g0000003"]
        # As many as the batch lacked, and no surplus: nothing beyond it is in flight.
        lane = run.engine._lane
        await until(lambda: lane.admitted == 0, "the end of what is in flight")
        counts = lane.counts
        assert counts.accepted == 4
        away = counts.turned_away
        assert 2 <= away <= 4  # 1 and 2, and those that were under way beside 3
        status = await run.learner.status()
        assert (status.waiting_groups, status.dropped_groups) == (2, 0)
        assert status.detail["turned_away_groups"] == away
        assert f"{away} groups discarded" in run.engine.status.line()
        mark = groups[-1].info.sequence_number
        await run.learner.acknowledge(mark)
    # What was discarded left no bytes, and stays discarded.
    with closing(sqlite3.connect(run.folder / "journal.sqlite")) as journal:
        assert journal.execute("SELECT count(*) FROM members").fetchone() == (0,)
        assert journal.execute("SELECT count(*) FROM logs").fetchone() == (0,)
    assert run_state(run.folder)["groups"]["turned_away"] == away
    async with here.engine() as run:
        assert (await turned_away(run))["turned_away_groups"] == away
        version = WeightVersion(lineage=version.lineage, step=1)
        await run.learner.publish(version, here.weights("1"))
        assert await ids_of(run, version, mark) == ["g0000006", "g0000009"]


def discarded(reason: str) -> int:
    """Number of groups of the sentence that a fruitless run is told."""
    told = re.search(r"discarded (\d+) groups in a row \(3 batches\)", reason)
    assert told is not None
    return int(told[1])


async def test_no_variation_ends_aloud(world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sieving, "MOST_EMPTY_ROUNDS", 3)
    here = await world(run=RUN, task={"dynamic_sampling": {"metric": "correct"}})
    with capture_logs() as said:  # every rollout answers 2: all are right, or all wrong
        async with here.engine() as run:
            version = await run.learner.version()
            began = time.monotonic()
            assert await ids_of(run, version, 0) == []  # at once: no group can come
            assert time.monotonic() - began < 15
            status = await run.learner.status()
            assert status.state == "fruitless"
            groups = discarded(status.detail["fruitless"])
            assert groups in (6, 7)  # one more may have been under way
            assert "'correct' of no group varies" in status.detail["fruitless"]
            assert len(here.sampler.requests) == groups * 2 * 2
            assert not run.task.done()
    (line,) = [line for line in said if line["event"] == "fruitless"]
    assert line["log_level"] == "error"
    assert discarded(line["reason"]) in range(6, groups + 1)
    async with here.engine() as run:  # the same command tries again
        await until(lambda: run.engine._lane.counts.turned_away >= groups + 6, "six groups more")


def test_kill_minus_nine_neither_loses_nor_doubles_a_position(tmp_path: Path) -> None:
    """Lives that are killed store each position once, and decide as one life would."""
    draw = random.Random(11)
    file = tmp_path / "journal.sqlite"
    command = [sys.executable, "-m", "tests.integration.engine.turning_away", str(file)]
    killed = 0
    for _life in range(3):
        with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"admits\n"
            blocks(draw.uniform(0.1, 0.5), "it is killed in the middle")
            child.send_signal(signal.SIGKILL)
        killed += child.returncode == -signal.SIGKILL
    assert killed == 3
    done = subprocess.run([*command, "drain"], timeout=60, check=False)
    assert done.returncode == 0
    with closing(sqlite3.connect(file)) as journal:
        rows = journal.execute("SELECT position, dropped FROM groups ORDER BY sequence").fetchall()
    positions = [position for position, _ in rows]
    assert sorted(positions) == list(range(len(rows)))
    assert len(rows) > 30
    one_life = GroupFilter(DynamicSampling(max_gen_batches=MOST), groups_per_step=BATCH)
    fates = [2 if one_life.turns_away(whole_group(position)) else 0 for position in positions]
    assert [dropped for _, dropped in rows] == fates
    assert {0, 2} == set(fates)
    kept_without = [p for p, fate in zip(positions, fates, strict=True) if not fate]
    assert any(len({earned(p, 0), earned(p, 1)}) == 1 for p in kept_without)  # rounds were spent
