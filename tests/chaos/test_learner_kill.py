"""kill -9 at each point of a learner's step: the losses are those of an undisturbed run.

The groups come from a record, so they do not depend on the weights. Each step of each life is
compared to the last bit.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.chaos.conftest import ROOT
from tests.integration.learner.fake_engine import FakeEngine, random_group
from tests.integration.learner.group_engine import GroupEngine
from tests.integration.learner.models import weights, write_model
from tests.integration.learner.test_sft import write_recipe
from toolwright import types as t

pytestmark = pytest.mark.slow

POINTS = (
    "the engine knows the checkpoint",
    "its groups are leased",
    "the gradients are there",
    "the weights have moved",
    "the policy's folder is half written",
    "the policy's folder is written",
    "the checkpoint is the newest, the engine does not know",
    "the engine has the version",
    "the step's line is written",
    "the checkpoint is half written",
    "the checkpoint is flushed and has no name",
)
BY_GROUP = (
    "the samplers join the group",
    "samplers have some of the buckets",
    "the samplers go on, there is no folder",
    "the policy's folder is half written",
    "the engine has the version",
)
IN_BACKGROUND = (
    "the checkpoint is copied",
    "the checkpoint is half written",
    "the weights have moved",
    "the checkpoint is flushed and has no name",
    "the checkpoint is the newest, the engine does not know",
    "the engine knows the checkpoint",
)
BACKGROUND = "learner.background_checkpoints=true"
STEPS = 8
CHANGES = (
    f"run.steps={STEPS}",
    "learner.checkpoint_every=2",
    "learner.keep_checkpoints=99",
    "learner.lease_wait_s=0.2",
    "learner.updates=2",
    "learner.optimizer.lr=1e-3",
    "learner.kl.coefficient=0.1",
)
GROUP = ('learner.publish.way="group"', "learner.publish.bucket_mib=1")
COMPARED = ("loss", "grad_norm", "entropy", "kl_reference", "reward", "clip_fraction", "ratio")


def recorded_group(number: int, _version: t.WeightVersion, folder: Path) -> list[t.Trajectory]:
    return random_group(number, t.WeightVersion(lineage="recorded", step=0), folder)


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of an undisturbed run, beside the model that it began with."""
    folder = tmp_path_factory.mktemp("calm")
    engine = FakeEngine(recorded_group, recorded=True)
    try:
        train(folder / "calm", write_model(folder / "model"), engine)
    finally:
        engine.stop()
    yield folder / "calm"


def train(folder: Path, model: Path, engine: FakeEngine, *points: str) -> str:
    """A whole run; what it printed."""
    folder.mkdir()
    recipe = write_recipe(folder, model)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.chaos.learner_main", str(recipe.path)),
            *(f'run.engine="{engine.address}"', *CHANGES, *points),
        ],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def lines(folder: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for line in (folder / "run" / "learner.jsonl").read_text(encoding="utf-8").splitlines()
    ]


def consumed(folder: Path) -> list[tuple[int, str]]:
    """(sequence number, group) by the surviving checkpoints' ledgers, in order."""
    found: list[tuple[int, str]] = []
    newest = (folder / "run" / "checkpoints" / "latest").read_text(encoding="utf-8").strip()
    for path in sorted((folder / "run" / "checkpoints").glob("step-*")):
        head, *rest = map(
            json.loads, (path / "ledger.jsonl").read_text(encoding="utf-8").splitlines()
        )
        if path.name <= newest and head["settled"] == len(found):
            found += [(entry["sequence_number"], entry["group"]) for entry in rest]
    return found


@pytest.mark.timeout(300)
def test_a_learner_that_is_killed_trains_as_if_nothing_had_been(tmp_path: Path, calm: Path) -> None:
    rough = tmp_path / "rough"
    engine = FakeEngine(recorded_group, recorded=True)
    try:
        output = train(rough, calm.with_name("model"), engine, *POINTS)
    finally:
        engine.stop()
    check_same(rough, calm, output, POINTS)


@pytest.mark.timeout(300)
def test_so_does_one_that_publishes_by_the_group(tmp_path: Path, calm: Path) -> None:
    rough = tmp_path / "rough"
    engine = GroupEngine(recorded_group, recorded=True, servers=1)
    try:
        output = train(rough, calm.with_name("model"), engine, *BY_GROUP, *GROUP)
    finally:
        engine.stop()
    check_same(rough, calm, output, BY_GROUP)
    assert engine.received
    assert engine.folder.name == f"{engine.version.lineage}-{STEPS}"  # type: ignore[union-attr]


@pytest.mark.timeout(300)
def test_so_does_one_that_writes_checkpoints_in_the_background(tmp_path: Path, calm: Path) -> None:
    rough = tmp_path / "rough"
    engine = FakeEngine(recorded_group, recorded=True)
    try:
        output = train(rough, calm.with_name("model"), engine, *IN_BACKGROUND, BACKGROUND)
    finally:
        engine.stop()
    check_same(rough, calm, output, IN_BACKGROUND)


def check_same(rough: Path, calm: Path, output: str, points: tuple[str, ...]) -> None:
    """The disturbed run's losses, groups and weights are the calm one's."""
    killed = [line for line in output.splitlines() if line.startswith("killed")]
    assert killed == [f"killed: {point}" for point in points]

    expected = {line["step"]: line for line in lines(calm)}
    assert list(expected) == list(range(1, STEPS + 1))
    seen = lines(rough)
    assert {line["step"] for line in seen} == set(expected)
    for line in seen:  # a step that two lives made is there twice
        for name in COMPARED:
            assert line[name] == expected[line["step"]][name], (line["step"], name)

    assert consumed(rough) == consumed(calm)
    one, other = weights(calm / "run" / "final"), weights(rough / "run" / "final")
    assert set(one) == set(other)
    assert all(torch.equal(one[name], other[name]) for name in one)
