"""Invariants of a training step on the real model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from learner.config.objective import Correction, Kl, Loss, Reject
from learner.config.weights import Optimizer
from learner.model.policy import Policy, borrowed_weights, load_frozen, load_policy
from learner.training.batch import Row, collate, micro_batches
from learner.training.objective import PolicyObjective
from learner.training.step import gradients, score
from learner.training.update import improve
from tests.integration.learner.rows import make_rows, weighed
from toolwright.credit.corrections import CORRECTIONS
from toolwright.credit.losses import LOSSES

pytestmark = pytest.mark.quick

BYPASS = PolicyObjective(loss=Loss(), kl=Kl(), correction="bypass")


@pytest.fixture
def policy(model_folder: Path, one_rank: None) -> Policy:
    return load_policy(model_folder, Optimizer(lr=1e-3), "float32")


def gradient_of(
    policy: Policy, rows: Sequence[Row], budget: int, objective: PolicyObjective = BYPASS
) -> tuple[float, torch.Tensor]:
    """(loss, flat gradient) of weighed rows."""
    parts = micro_batches(rows, rank=0, ranks=1, budget=budget)
    stats = gradients(policy, parts, objective, entropy=objective.entropy)
    return stats["loss"], torch.cat([p.main_grad.flatten() for p in policy.bare.parameters()])


@pytest.mark.parametrize(
    "mode", ["token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-sum-token-sum-norm"]
)
def test_splitting_and_padding_change_nothing(policy: Policy, mode: str) -> None:
    """Invariants 1, 2, 3: one row a micro-batch has no padding at all, one batch has the most."""
    rows = weighed(make_rows(7), mode)
    loss, grad = gradient_of(policy, rows, budget=100_000)
    for budget in (1, 60):
        other_loss, other = gradient_of(policy, rows[::-1], budget)
        assert other_loss == pytest.approx(loss, rel=1e-5, abs=1e-6)
        assert torch.allclose(other, grad, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", LOSSES)
def test_splitting_changes_no_loss(policy: Policy, kind: str) -> None:
    """Of whole sequences or of tokens; with weights of whole sequences and an entropy bonus too."""
    loss = Loss(kind=kind, entropy=0.1)
    objective = PolicyObjective(loss=loss, kl=Kl(), correction="seq_truncate")
    rows = weighed([replace(r, old=r.behaviour + 0.2) for r in make_rows(7)], loss.aggregation)
    value, grad = gradient_of(policy, rows, 100_000, objective)
    assert bool(grad.any())
    for budget in (1, 60):
        other_value, other = gradient_of(policy, rows[::-1], budget, objective)
        assert other_value == pytest.approx(value, abs=1e-6)
        assert torch.allclose(other, grad, rtol=1e-4, atol=1e-6)


def test_observation_log_probs_change_nothing(policy: Policy) -> None:
    rows = weighed(make_rows(4))
    noisy = [
        replace(r, behaviour=np.where(r.target, r.behaviour, -99).astype(np.float32)) for r in rows
    ]
    loss, grad = gradient_of(policy, rows, 100)
    other_loss, other = gradient_of(policy, noisy, 100)
    assert other_loss == loss
    assert torch.equal(other, grad)


@pytest.mark.parametrize("correction", CORRECTIONS)
def test_on_policy_is_reinforce(policy: Policy, correction: str) -> None:
    """Invariant 7, and that all corrections agree where there is nothing to correct."""
    rows = weighed(make_rows(5))
    scored, _ = score(policy, rows, 100, "old")
    rows = [replace(r, behaviour=r.old, old=None) for r in scored]  # type: ignore[arg-type]
    objective = PolicyObjective(loss=Loss(), kl=Kl(), correction=correction)
    loss, grad = gradient_of(policy, rows, 100, objective)
    reward = sum(r.weight * r.advantage[r.target].sum() for r in rows)
    assert loss == pytest.approx(-reward, abs=1e-6)

    def reinforce(batch, logp, entropy):  # type: ignore[no-untyped-def]
        return -logp * batch.advantage, {}

    gradients(policy, micro_batches(rows, rank=0, ranks=1, budget=100), reinforce)
    expected = torch.cat([p.main_grad.flatten() for p in policy.bare.parameters()])
    assert torch.allclose(grad, expected, atol=1e-6)


def test_gradient_agrees_with_a_finite_difference(policy: Policy) -> None:
    """Invariant 8 through the whole model, along the gradient's own direction."""
    rows = weighed(make_rows(5))
    _, grad = gradient_of(policy, rows, 100)
    parameters = list(policy.bare.parameters())
    direction = torch.split(grad / grad.norm(), [p.numel() for p in parameters])
    size = 5e-3
    values = []
    for sign in (1, -2):
        with torch.no_grad():
            for parameter, part in zip(parameters, direction, strict=True):
                parameter.add_(sign * size * part.view_as(parameter))
        values.append(gradient_of(policy, rows, 100)[0])
    assert (values[0] - values[1]) / (2 * size) == pytest.approx(float(grad.norm()), rel=0.02)


def test_rate_zero_leaves_every_bit(policy: Policy) -> None:
    still = load_policy(policy.source, Optimizer(lr=0.0, weight_decay=0.1), "float32")
    before = [p.detach().clone() for p in still.bare.parameters()]
    for number in range(3):
        done = improve_once(still, make_rows(4, seed=number))
        assert done.grad_norm > 0
    after = list(still.bare.parameters())
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_rows_without_a_signal_cost_nothing_and_still_count(policy: Policy) -> None:
    rows = make_rows(6)
    silent = [replace(r, advantage=np.zeros_like(r.advantage), silent=True) for r in rows]
    done = improve_once(policy, silent)
    assert done.skipped
    assert done.tokens == 0
    assert improve_once(policy, []).skipped

    mixed = rows[:3] + silent[3:]
    counted, dropped = (weighed(mixed, drop_silent=drop) for drop in (False, True))
    live = sum(r.count for r in rows[:3])
    assert counted[0].weight == pytest.approx(1 / sum(r.count for r in rows))
    assert dropped[0].weight == pytest.approx(1 / live)
    assert len(dropped) == 3


def test_a_member_without_an_advantage_counts_while_its_group_has_a_signal(policy: Policy) -> None:
    """A reward that happens to be its group's mean is no reason to leave the batch."""
    rows = make_rows(3)
    rows[0] = replace(rows[0], advantage=np.zeros_like(rows[0].advantage))
    (_, one, _) = weighed(rows, drop_silent=True)
    assert one.weight == pytest.approx(1 / sum(r.count for r in rows))


def test_several_updates_take_the_start_of_the_batch_as_proximal(policy: Policy) -> None:
    objective = PolicyObjective(loss=Loss(), kl=Kl(), correction="decoupled")
    done = improve_once(policy, make_rows(8), objective, updates=3)
    assert not done.skipped
    assert done.sums["tokens"] == sum(r.count for r in make_rows(8))
    assert done.sums["fresh_tokens"] < done.sums["tokens"]


def test_the_kl_term_pulls_towards_the_reference(policy: Policy) -> None:
    objective = PolicyObjective(loss=Loss(), kl=Kl(coefficient=5.0), correction="bypass")
    reference = load_frozen(policy.source, "float32")
    with torch.no_grad():
        for parameter in policy.bare.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    rows = [replace(r, advantage=np.zeros_like(r.advantage)) for r in make_rows(8)]
    distances = []
    for _ in range(8):
        sums = improve_once(policy, rows, objective, reference=reference).sums
        distances.append(sums["kl_reference"] / sums["tokens"])
    assert distances[-1] < 0.7 * distances[0]


LEFT_OUT = PolicyObjective(
    loss=Loss(),
    kl=Kl(),
    correction="token_mask",
    bounds=Correction(
        veto=0.2, upper=1.5, reject=(Reject(statistic="k3", over="mean", upper=0.07),)
    ),
)
"""Of `rows_that_disagree` something is left out for each of the three reasons."""


def rows_that_disagree(policy: Policy) -> list[Row]:
    """Near the policy, but for a vetoed row, a rejected one, and tokens of all."""
    scored, _ = score(policy, make_rows(7), 100, "old")
    draw = np.random.default_rng(0)
    rows = []
    for place, row in enumerate(scored):
        noise = draw.normal(0, 0.6 if place == 3 else 0.25, size=len(row.tokens))
        noise = noise.clip(-1.5, 1.5)
        noise[np.flatnonzero(row.target)[-1]] = 2.5 if place == 1 else 0.5
        assert row.old is not None
        rows.append(replace(row, behaviour=(row.old + noise).astype(np.float32), old=None))
    rows[5] = replace(rows[5], advantage=np.zeros_like(rows[5].advantage))
    return rows


@pytest.mark.parametrize("mode", ["token-mean", "seq-mean-token-mean"])
def test_what_is_left_out_counts_in_no_mean(policy: Policy, mode: str) -> None:
    """As if the targets had not been there: those of a row without an advantage included."""
    objective = replace(LEFT_OUT, loss=Loss(aggregation=mode))
    rows = rows_that_disagree(policy)
    scored, _ = score(policy, rows, 100, "old")
    kept = []
    for place, row in enumerate(scored):
        assert row.old is not None
        rho = np.exp(row.old - row.behaviour)
        target = row.target & (rho >= 1 / 1.5) & (rho <= 1.5) & (place not in (1, 3))
        assert target.sum() < row.target.sum(), "the case is one of each row"
        kept.append(replace(row, target=target))
    _, expected = gradient_of(policy, weighed([r for r in kept if r.count], mode), 100, objective)
    expected = expected.clone()

    done = improve_once(load_policy(policy.source, Optimizer(lr=0.0), "float32"), rows, objective)
    assert (done.sums["vetoed"], done.sums["rejected"]) == (1, 1)
    assert done.sums["compared"] == sum(r.count for r in rows)
    assert done.sums["masked_tokens"] == sum(r.count for r in rows) - sum(r.count for r in kept)
    assert done.sums["max_rho"] > 1.5, "what is left out is told too"
    assert done.grad_norm == pytest.approx(float(expected.norm()), rel=1e-5)


def test_splitting_changes_nothing_of_what_is_left_out(policy: Policy) -> None:
    rows = rows_that_disagree(policy)
    unlike = [  # at observations, where nobody may look
        replace(r, behaviour=np.where(r.target, r.behaviour, -99).astype(np.float32)) for r in rows
    ]
    found = []
    for budget, own_rows in ((100_000, rows), (60, unlike), (1, rows[::-1])):
        own = load_policy(policy.source, Optimizer(lr=1e-3), "float32")
        done = improve_once(own, own_rows, LEFT_OUT, budget=budget)
        found.append((done.sums["masked_tokens"], done.sums["loss"], done.grad_norm))
    for other in found[1:]:
        assert other == pytest.approx(found[0], abs=1e-6)


def test_a_batch_of_which_nothing_is_left_moves_nothing_and_says_why(policy: Policy) -> None:
    objective = replace(LEFT_OUT, bounds=Correction(veto=0.99))
    rows = rows_that_disagree(policy)
    for updates in (1, 3):
        done = improve_once(policy, rows, objective, updates=updates)
        assert (done.moved, done.broken, done.dropped) == (0, 0, [])
        assert done.emptied is not None
        assert "7 sequences vetoed" in done.emptied
    assert improve_once(policy, rows, LEFT_OUT).emptied is None
    assert improve_once(policy, []).emptied is None


def test_a_row_that_cannot_be_judged_is_dropped_and_counted(policy: Policy) -> None:
    rows = rows_that_disagree(policy)
    broken = rows[5].behaviour.copy()
    broken[rows[5].target] = np.nan
    rows[5] = replace(rows[5], behaviour=broken)  # it has no advantage either
    done = improve_once(policy, rows, LEFT_OUT)
    assert done.dropped == ["t5"]
    assert done.moved == 1
    assert all(np.isfinite(value) for value in done.sums.values())


def test_lent_weights_score_as_their_folder_and_leave_no_trace(
    policy: Policy, tmp_path: Path
) -> None:
    rows = make_rows(3)
    expected, _ = score(load_frozen(policy.source, "float32"), rows, 100, "old")
    with torch.no_grad():
        for parameter in policy.bare.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    before = [p.detach().clone() for p in policy.bare.parameters()]
    with borrowed_weights(policy, policy.source):
        found, _ = score(policy, rows, 100, "old")
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.old is not None
        assert np.array_equal(mine.old, theirs.old)
    with pytest.raises(OSError, match="gone"), borrowed_weights(policy, policy.source):
        raise OSError("gone")
    with pytest.raises(Exception, match="nothing"), borrowed_weights(policy, tmp_path / "nothing"):
        pass
    assert all(torch.equal(a, b) for a, b in zip(before, policy.bare.parameters(), strict=True))


def test_an_empty_micro_batch_gives_a_zero_gradient(policy: Policy) -> None:
    gradients(policy, [collate([], [])], BYPASS)
    assert not any(bool(p.main_grad.any()) for p in policy.bare.parameters())


def improve_once(policy: Policy, rows, objective=BYPASS, *, updates=1, reference=None, budget=200):  # type: ignore[no-untyped-def]
    return improve(
        policy,
        rows,
        objective,
        reference=reference,
        updates=updates,
        budget=budget,
        step=0,
        steps=10,
        drop_silent=False,
    )
