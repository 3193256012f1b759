"""What tokens of several tasks weigh, and what is told of each task."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from learner.config.objective import Loss
from learner.maths.aggregation import token_weights
from learner.maths.tasks import Tasks, mixed_weights
from learner.metrics import task_stats
from learner.training.minibatch import MiniBatch
from learner.training.objective import task_stats as token_stats_of_tasks
from tests.unit.learner.records import Step, trajectory
from toolwright.types import Group, StopReason, Trajectory, WeightVersion

MODES = ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-sum-token-sum-norm")
V0 = WeightVersion(lineage="a", step=0)


def tasks(*weights: float, per_task: bool = True) -> Tasks:
    return Tasks(names=tuple("abcd"[: len(weights)]), weights=weights, per_task=per_task)


@pytest.mark.parametrize(
    ("mode", "wanted"),
    [
        # a: 1 and 3 tokens, b: 2 tokens; a's weight is 3 of 4.
        ("token-mean", [0.75 / 4, 0.75 / 4, 0.25 / 2]),
        ("seq-mean-token-mean", [0.75 / 2, 0.75 / 6, 0.25 / 2]),
        ("seq-mean-token-sum", [0.75 / 2, 0.75 / 2, 0.25]),
    ],
)
def test_means_are_taken_within_each_task(mode: str, wanted: list[float]) -> None:
    found = mixed_weights([1, 3, 2], [0, 0, 1], tasks(3.0, 1.0), mode)
    assert found == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("mode", MODES)
def test_equal_weights_together_are_the_plain_mean(mode: str) -> None:
    counts = [1, 3, 2, 0]
    plain = token_weights(counts, mode, norm=7.0)
    found = mixed_weights(counts, [0, 1, 0, 1], tasks(2.0, 2.0, per_task=False), mode, norm=7.0)
    assert found == plain


@pytest.mark.parametrize("per_task", [True, False])
def test_a_sum_over_a_constant_knows_no_means(per_task: bool) -> None:
    found = mixed_weights(
        [5, 9], [0, 1], tasks(1.0, 1.0, per_task=per_task), "seq-sum-token-sum-norm", norm=10.0
    )
    assert found == pytest.approx([0.1, 0.1])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("per_task", [True, False])
def test_one_task_is_the_plain_mean_to_the_bit(mode: str, per_task: bool) -> None:
    counts = [3, 1, 7, 0]
    found = mixed_weights(counts, [0] * 4, tasks(0.3, per_task=per_task), mode, norm=3.0)
    assert found == token_weights(counts, mode, norm=3.0)


def test_a_task_with_nothing_left_leaves_the_others_their_shares() -> None:
    assert mixed_weights([2, 0], [0, 1], tasks(1.0, 1.0), "token-mean") == [0.25, 0.0]
    assert mixed_weights([2], [0], tasks(1.0, 1.0), "token-mean") == [0.25]
    assert mixed_weights([], [], tasks(1.0, 1.0), "token-mean") == []


def test_a_part_weighs_its_rows_by_their_tasks() -> None:
    from learner.training.batch import Row

    def row(task: int, targets: int) -> Row:
        ones = np.ones(targets + 1, dtype=np.float32)
        target = np.array([False] + [True] * targets)
        return Row(
            trajectory=f"{task}", tokens=np.zeros(targets + 1, dtype=np.int64), target=target,
            behaviour=-ones, temperature=ones, fresh=target, advantage=ones, task=task,
        )  # fmt: skip

    rows = [row(0, 1), row(1, 2), row(0, 3)]
    part = MiniBatch(rows, [1, 2, 3], Loss(), all_rows=False, tasks=tasks(1.0, 1.0))
    assert [one.weight for one in part.weighed()] == pytest.approx([0.125, 0.25, 0.125])
    plain = replace(part, tasks=None)
    assert [one.weight for one in plain.weighed()] == [1 / 6] * 3


def test_token_sums_are_told_of_each_task() -> None:
    values = {"entropy": torch.tensor([1.0, 2.0, 4.0])}
    found = token_stats_of_tasks(values, torch.tensor([0, 1, 0]), ("a", "b", "c"))
    assert {name: float(value) for name, value in found.items()} == {
        "entropy/a": 5.0, "entropy/b": 2.0, "entropy/c": 0.0
    }  # fmt: skip
    empty = token_stats_of_tasks(
        {"entropy": torch.zeros(0)}, torch.zeros(0, dtype=torch.int64), ("a", "b", "c")
    )
    assert empty.keys() == found.keys(), "ranks reduce them together"


def test_a_line_tells_rewards_and_stops_of_each_task() -> None:
    groups = [
        Group(id="g0", trajectories=(member("a", 1.0), member("a", 0.0))),
        Group(id="g1", trajectories=(member("b", 0.5, StopReason.MAX_TURNS),)),
    ]
    sums = {
        "tokens/a": 4.0, "entropy/a": 2.0, "loss/a": 0.3, "clipped/a": 1.0,
        "tokens/b": 0.0, "entropy/b": 0.0, "loss/b": 0.0, "clipped/b": 0.0,
    }  # fmt: skip
    found = task_stats(groups, V0, sums, ("a", "b", "c"))
    assert found["task/a/reward"] == 0.5
    assert found["task/a/groups_with_signal"] == 1
    assert found["task/a/entropy"] == 0.5
    assert found["task/a/clip_fraction"] == 0.25
    assert found["task/a/loss"] == 0.3
    assert found["task/b/stop/max_turns"] == 1
    assert "task/b/entropy" not in found, "no token of it was trained on"
    assert found["task/c/groups"] == 0
    assert "task/c/reward" not in found
    assert task_stats(groups, V0, sums, ()) == {}


def member(task: str, reward: float, stop: StopReason = StopReason.ANSWERED) -> Trajectory:
    made = trajectory("t", "g", reward, [Step()])
    return replace(made, task=replace(made.task, name=task), stop_reason=stop)
