"""Tasks' gradients one by one: their sum is the whole, their cosines are those of the vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from learner.config.objective import Kl, Loss
from learner.config.weights import Optimizer
from learner.maths.tasks import Tasks
from learner.model.policy import Policy, load_policy
from learner.training.batch import Row
from learner.training.objective import PolicyObjective
from learner.training.task_gradients import TaskGradients
from learner.training.update import improve, together
from tests.integration.learner.rows import make_rows, weighed

pytestmark = pytest.mark.quick

NAMES = ("a", "b", "c")
OBJECTIVE = PolicyObjective(loss=Loss(), kl=Kl(), correction="bypass", tasks=NAMES)


@pytest.fixture
def policy(model_folder: Path, one_rank: None) -> Policy:
    return load_policy(model_folder, Optimizer(lr=1e-3), "float32")


def mixed(count: int = 9) -> list[Row]:
    return [replace(row, task=place % 3) for place, row in enumerate(weighed(make_rows(count)))]


def flat(policy: Policy) -> torch.Tensor:
    return torch.cat([p.main_grad.flatten() for p in policy.bare.parameters()]).clone()


def whole(policy: Policy, rows: Sequence[Row]) -> torch.Tensor:
    together(policy, rows, OBJECTIVE, 60, entropy="metric", broken=torch.zeros(len(rows)))
    return flat(policy)


def test_cosines_norms_and_the_sum_are_those_of_the_vectors(policy: Policy) -> None:
    rows = mixed()
    total = whole(policy, rows)
    own = [whole(policy, [row for row in rows if row.task == task]) for task in range(3)]
    tasks = TaskGradients(NAMES)
    broken = torch.zeros(len(rows))
    stats = tasks(policy, rows, OBJECTIVE, 60, entropy="metric", broken=broken)
    assert torch.allclose(flat(policy), total, rtol=1e-4, atol=1e-7)
    assert stats["loss"] == pytest.approx(sum(stats[f"loss/{name}"] for name in NAMES), abs=1e-6)
    for one, name in enumerate(NAMES):
        norm = float(own[one].norm())
        assert tasks.found[f"task/{name}/grad_norm"] == pytest.approx(norm, rel=1e-5)
        for other in range(one + 1, 3):
            direct = torch.nn.functional.cosine_similarity(own[one], own[other], dim=0)
            found = tasks.found[f"gradient_cosine/{name},{NAMES[other]}"]
            assert found == pytest.approx(float(direct), abs=1e-5)


def test_opposite_tasks_are_in_full_conflict_however_unequal_they_are(policy: Policy) -> None:
    rows = weighed(make_rows(2, seed=3))
    against = [replace(row, task=1, weight=-1e-4 * row.weight) for row in rows]
    tasks = TaskGradients(NAMES)
    tasks(policy, [*rows, *against], OBJECTIVE, 60, entropy="metric", broken=torch.zeros(4))
    assert tasks.found["gradient_cosine/a,b"] == pytest.approx(-1.0, abs=1e-4)


def test_a_task_without_a_gradient_has_no_direction(policy: Policy) -> None:
    rows = [replace(row, weight=0.0) if row.task == 1 else row for row in mixed()]
    tasks = TaskGradients(NAMES)
    tasks(policy, rows, OBJECTIVE, 60, entropy="metric", broken=torch.zeros(len(rows)))
    assert list(tasks.found) == [*(f"task/{n}/grad_norm" for n in NAMES), "gradient_cosine/a,c"]
    assert tasks.found["task/b/grad_norm"] == 0


def test_a_broken_row_leaves_whichever_way_gradients_are_taken(policy: Policy) -> None:
    """A loss that is no number is told of its own row, and the rest of the batch is trained on."""
    rows = mixed()
    rows[4] = replace(rows[4], behaviour=rows[4].behaviour * float("inf"))
    loss = Tasks(names=NAMES, weights=(1.0, 1.0, 2.0), per_task=True)
    done = improve(
        policy, rows, OBJECTIVE, reference=None, updates=1, budget=60, step=0, steps=1,
        drop_silent=False, tasks=loss, measure_tasks=True,
    )  # fmt: skip
    assert (done.moved, done.dropped) == (1, [rows[4].trajectory])
    assert len(done.task_gradients) == 6


def test_looking_at_the_tasks_changes_the_step_by_rounding_alone(
    model_folder: Path, one_rank: None
) -> None:
    found = []
    for measured in (True, False):
        policy = load_policy(model_folder, Optimizer(lr=1e-3), "float32")
        tasks = Tasks(names=NAMES, weights=(1.0, 1.0, 2.0), per_task=True)
        done = improve(
            policy, mixed(), OBJECTIVE, reference=None, updates=1, budget=60, step=0, steps=1,
            drop_silent=False, tasks=tasks, measure_tasks=measured,
        )  # fmt: skip
        assert bool(done.task_gradients) is measured
        found.append(done)
    assert found[0].grad_norm == pytest.approx(found[1].grad_norm, rel=1e-4)
    assert found[0].sums["loss"] == pytest.approx(found[1].sums["loss"], abs=1e-6)
