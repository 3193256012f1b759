"""Steps that teach nothing are said aloud, counted, and in a row the end of the run."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from learner import run as loop
from learner.cli import app
from learner.errors import WorthlessError
from tests.integration.learner.fake_engine import FakeEngine, random_group
from tests.integration.learner.models import weights
from tests.integration.learner.test_run import ledger, metrics, recipe_for
from toolwright import types as t

pytestmark = pytest.mark.quick


def silent_from(step: int, until: int = 99) -> Any:
    def write(number: int, version: t.WeightVersion, folder: Path) -> Any:
        members = random_group(number, version, folder)
        if step <= version.step < until:
            return [replace(member, reward=1.0) for member in members]
        return members

    return write


def test_a_signal_in_between_begins_the_count_again(
    tmp_path: Path, model_folder: Path, engine: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    engine.write = silent_from(1, 3)
    changes = {"run.steps": 5, "learner.patience_steps": 3}
    loop.run(recipe_for(tmp_path, model_folder, engine, **changes))
    assert [line["worthless_steps"] for line in metrics(tmp_path)] == [0, 1, 2, 0, 0]
    reasons = [line.get("worthless", "") for line in metrics(tmp_path)]
    assert [reason[:15] for reason in reasons] == ["", "3 of 3 groups w", "3 of 3 groups w", "", ""]
    # Weights that did not move are not written again, and the samplers' are compared all the same.
    assert engine.folders[1] == engine.folders[2] == engine.folders[3] != engine.folders[4]
    assert {path.name[-1] for path in engine.folders[4].parent.iterdir()} == {"1", "4", "5"}
    assert all(line["gap_tokens"] > 0 for line in metrics(tmp_path))
    said = [line for line in capsys.readouterr().out.splitlines() if "taught nothing" in line]
    assert said == [
        f"step {step} taught nothing: 3 of 3 groups without a signal, all rewards of a group are "
        "equal (12 of 12 are 1)"
        for step in (2, 3)
    ]


def test_patience_ends_with_a_checkpoint_and_status_4(
    tmp_path: Path, model_folder: Path, engine: FakeEngine
) -> None:
    engine.write = silent_from(1)
    recipe = recipe_for(tmp_path, model_folder, engine)
    set_ = [f"run.engine={engine.address}", "run.steps=9", "learner.lease_wait_s=0.2"]
    set_ += ["learner.patience_steps=2", "learner.keep_checkpoints=99"]
    command = ["run", str(recipe.path), *[word for s in set_ for word in ("--set", s)]]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 4
    assert "2 steps in a row taught nothing, up to step 3: 3 of 3 groups" in done.stderr
    assert [entry["step"] for entry in ledger(tmp_path)] == [0] * 3 + [1] * 3 + [2] * 3

    engine.write = random_group
    assert CliRunner().invoke(app, command).exit_code == 0
    assert [line["step"] for line in metrics(tmp_path)] == list(range(1, 10))


def test_a_collapse_ends_with_status_4_and_names_the_update_and_the_rate(
    tmp_path: Path, model_folder: Path, engine: FakeEngine
) -> None:
    def write(number: int, version: t.WeightVersion, folder: Path) -> Any:
        members = random_group(number, version, folder)
        if version.step < 6:
            return members
        return [
            replace(member, reward=0.01 * at, status=t.Status.TRUNCATED)
            for at, member in enumerate(members)
        ]

    engine.write = write
    recipe = recipe_for(tmp_path, model_folder, engine)
    set_ = [f"run.engine={engine.address}", "run.steps=20", "learner.lease_wait_s=0.2"]
    set_ += ["learner.optimizer.lr=1e-5"]
    command = ["run", str(recipe.path), *[word for s in set_ for word in ("--set", s)]]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 4
    assert (
        "collapsed at update 7, lr is 1e-05: 100% of the trajectories end at a limit, the reward, "
    ) in done.stderr
    assert "lower learner.optimizer.lr" in done.stderr
    assert metrics(tmp_path)[-1]["step"] == 9
    # The same command compares with what the earlier life wrote, over steps of its own.
    again = CliRunner().invoke(app, command)
    assert again.exit_code == 4
    assert "collapsed at update 10" in again.stderr


def test_a_correction_that_leaves_nothing_ends_the_run_and_says_so(
    tmp_path: Path, model_folder: Path, engine: FakeEngine
) -> None:
    """The rewards differ: only what was done about the sampler's log-probs takes the signal."""
    changes = {
        "run.correction": '"token_mask"',
        "learner.patience_steps": 2,
        "learner.updates": 2,
        "learner.loss.kind": '"gspo"',
        "learner.correction.reject": '[{ statistic = "k2", over = "max", upper = 1e-9 }]',
    }
    before = weights(model_folder)
    with pytest.raises(WorthlessError, match="12 rejected"):
        loop.run(recipe_for(tmp_path, model_folder, engine, **changes))
    lines = metrics(tmp_path)
    assert [line["worthless_steps"] for line in lines] == [1, 2]
    assert [line["rejected_sequences"] for line in lines] == [12, 12]
    assert [line["correction_masked_fraction"] for line in lines] == [1, 1]
    assert [(line["skipped_update"], line["nonfinite_updates"]) for line in lines] == [
        (True, 0)
    ] * 2
    after = weights(engine.folders[2])
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_response_that_cannot_fit_is_said_before_the_first_lease(
    tmp_path: Path, model_folder: Path, engine: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "long"
    shutil.copytree(model_folder, folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(
        json.dumps(config | {"max_position_embeddings": 10**9}), encoding="utf-8"
    )
    changes = {"run.steps": 1, "task.limits.response": 10**9}
    loop.run(recipe_for(tmp_path, folder, engine, **changes))
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith("memory: about ")
    assert "micro-batches of 1,000,000,000 tokens" in first
    assert "set task.limits.response to at most" in second
