"""A run by other estimators, with credit of turns and with KL in the reward."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from learner import run as loop
from tests.integration.learner.fake_engine import FakeEngine, random_group
from tests.integration.learner.test_run import metrics, recipe_for
from toolwright import types as t

pytestmark = pytest.mark.quick


def with_turns(number: int, version: t.WeightVersion, folder: Path) -> Sequence[t.Trajectory]:
    """Rewards are equal: only what the first turns earned says who did better."""
    return [
        replace(
            member,
            reward=1.0,
            reward_parts=(t.RewardPart(name="call", value=float(index % 2), turn=0),),
            anchors={0: ("quad",)},
        )
        for index, member in enumerate(random_group(number, version, folder))
    ]


def test_turns_alone_can_teach(tmp_path: Path, model_folder: Path, engine: FakeEngine) -> None:
    engine.write = with_turns
    loop.run(recipe_for(tmp_path, model_folder, engine, **{"run.steps": 1}))
    (line,) = metrics(tmp_path)
    assert (line["worthless_steps"], line["skipped_update"]) == (1, True)
    changes = {"run.steps": 2, "learner.credit.turns": '"anchor"'}
    loop.run(recipe_for(tmp_path, model_folder, engine, **changes))
    line = metrics(tmp_path)[-1]
    assert (line["worthless_steps"], line["skipped_update"]) == (0, False)
    assert line["grad_norm"] > 0
    assert line["turn_credit_share"] == 1.0
    assert line["turns_compared_fraction"] == 0.5


def test_kl_is_in_the_reward_or_in_the_loss(
    tmp_path: Path, model_folder: Path, engine: FakeEngine
) -> None:
    """Rewards are equal, so that the distance of each token to the reference decides alone."""
    changes = {
        "run.steps": 1,
        "learner.advantage.estimator": '"reinforce_pp"',
        "learner.kl.coefficient": 0.1,
        "learner.kl.place": '"reward"',
    }
    engine.write = with_turns
    loop.run(recipe_for(tmp_path, model_folder, engine, **changes))
    (line,) = metrics(tmp_path)
    assert line["kl_in_reward"] != 0
    assert "kl_reference" not in line
    assert line["advantage_std"] == pytest.approx(1, abs=0.05)
    assert not line["skipped_update"]
