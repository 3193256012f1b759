"""Losses: gradients against finite differences, on-policy identities, weights of tokens."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from learner.config.objective import Kl, Loss
from learner.maths.aggregation import token_weights
from learner.maths.kl import kl
from learner.maths.losses import Tokens, loss_function
from learner.maths.ratios import importance
from learner.training.batch import MicroBatch
from learner.training.objective import PolicyObjective
from toolwright.credit.losses import AGGREGATIONS, KL_ESTIMATORS, LOSSES

ROWS = torch.tensor([0, 0, 0, 3, 3, 5, 5, 5, 5])
"""Three sequences, by their places in a larger batch."""
COUNTS = [3, 2, 4]
WIDTH, WORDS = 3, 5


def numbers(seed: int, *shape: int) -> torch.Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=draw)


HIDDEN = numbers(0, len(ROWS), WIDTH)
TOKENS = torch.arange(len(ROWS)) % WORDS
START = numbers(3, WIDTH, WORDS)


def log_probs(weights: torch.Tensor) -> torch.Tensor:
    """The toy model: one linear layer over the words."""
    return (HIDDEN @ weights).log_softmax(-1)[torch.arange(len(ROWS)), TOKENS]


REFERENCE = log_probs(START) + numbers(2, len(ROWS)) * 0.5


def entropies(weights: torch.Tensor) -> torch.Tensor:
    return torch.distributions.Categorical(logits=HIDDEN @ weights).entropy()


def advantages(*, of_sequences: bool = True) -> torch.Tensor:
    if of_sequences:
        return torch.tensor([0.7, -1.1, 0.4], dtype=torch.float64).repeat_interleave(
            torch.tensor(COUNTS)
        )
    return numbers(4, len(ROWS))


def batch(*, old: torch.Tensor, behaviour: torch.Tensor, advantage: torch.Tensor) -> MicroBatch:
    nothing = torch.zeros(len(ROWS))
    return MicroBatch(
        tokens=TOKENS[None],
        positions=TOKENS[None],
        lengths=(len(TOKENS),),
        index=TOKENS,
        targets=TOKENS,
        temperature=nothing,
        behaviour=behaviour,
        advantage=advantage,
        weight=nothing,
        fresh=torch.ones(len(ROWS), dtype=torch.bool),
        row=ROWS,
        task=torch.zeros_like(ROWS),
        old=old,
        reference=REFERENCE,
    )


def total(
    weights: torch.Tensor, objective: PolicyObjective, part: MicroBatch, mode: str = "token-mean"
) -> torch.Tensor:
    """The loss of the toy model as a step adds it up."""
    token_loss, _ = objective(part, log_probs(weights), entropies(weights))
    shares = token_weights(COUNTS, mode)
    return (
        token_loss * torch.tensor(shares).double().repeat_interleave(torch.tensor(COUNTS))
    ).sum()


def gradient(value: Callable[[torch.Tensor], torch.Tensor], at: torch.Tensor) -> torch.Tensor:
    point = at.clone().requires_grad_()
    (found,) = torch.autograd.grad(value(point), point)
    return found


def numeric(value: Callable[[torch.Tensor], torch.Tensor], at: torch.Tensor) -> torch.Tensor:
    """Central differences."""
    out, size = torch.zeros_like(at), 1e-6
    for place in range(at.numel()):
        step = torch.zeros_like(at).flatten()
        step[place] = size
        step = step.view_as(at)
        out.view(-1)[place] = (value(at + step) - value(at - step)) / (2 * size)
    return out


def assert_no_bound_is_near(part: MicroBatch, objective: PolicyObjective) -> None:
    """Finite differences do not see a corner that they step over."""
    found = objective.policy_loss(part, log_probs(START), part.old)  # type: ignore[arg-type]
    assert bool((found.above | found.below | found.dual).any())
    assert not bool((found.above | found.below | found.dual).all())


@pytest.mark.parametrize("kind", ["ppo", "gspo", "sapo", "gmpo", "distill"])
def test_gradient_agrees_with_finite_differences(kind: str) -> None:
    """Through the model, where bounds decide at some tokens and at others do not."""
    old = log_probs(START) + numbers(5, len(ROWS)) * 0.5
    part = batch(old=old, behaviour=old, advantage=advantages())
    clip = {"clip_low": 0.1, "clip_high": 0.1} if kind == "gspo" else {}
    loss = Loss(kind=kind, **clip)  # type: ignore[arg-type]
    objective = PolicyObjective(loss=loss, kl=Kl(), correction="token_truncate")
    if kind not in ("sapo", "distill"):
        assert_no_bound_is_near(part, objective)

    def value(weights: torch.Tensor) -> torch.Tensor:
        return total(weights, objective, part, loss.aggregation)

    assert torch.allclose(gradient(value, START), numeric(value, START), atol=1e-8)


def test_distillation_has_the_gradient_of_the_reverse_kl() -> None:
    """Over all words at each position, weighed as the policy samples them."""
    teacher = (HIDDEN @ numbers(6, WIDTH, WORDS)).log_softmax(-1)
    old = (HIDDEN @ START).log_softmax(-1)
    objective = PolicyObjective(loss=Loss(kind="distill"), kl=Kl(), correction="bypass")

    def expected_loss(weights: torch.Tensor) -> torch.Tensor:
        logp, whole = (HIDDEN @ weights).log_softmax(-1), torch.zeros((), dtype=torch.float64)
        for word in range(WORDS):
            advantage = teacher[:, word] - old[:, word]
            part = batch(old=old[:, word], behaviour=old[:, word], advantage=advantage)
            token_loss, _ = objective(part, logp[:, word], torch.zeros(len(ROWS)))
            whole = whole + (old[:, word].exp() * token_loss).sum()
        return whole

    def reverse_kl(weights: torch.Tensor) -> torch.Tensor:
        logp = (HIDDEN @ weights).log_softmax(-1)
        return (logp.exp() * (logp - teacher)).sum()

    found = gradient(expected_loss, START)
    assert float(found.abs().max()) > 0.1
    assert torch.allclose(found, numeric(reverse_kl, START), atol=1e-8)


def test_the_dual_clip_decides_where_a_bad_token_became_likely() -> None:
    at, three = numbers(5, 4), torch.full((4,), 3.0, dtype=torch.float64)
    tokens = Tokens(logp=at, old=at - three, advantage=-three, row=torch.zeros(4))
    found = loss_function("ppo")(tokens, Loss(dual_clip=3.0))
    assert bool(found.dual.all())
    assert torch.equal(found.loss, 3 * three)
    none = loss_function("ppo")(tokens, Loss(dual_clip=0.0))
    assert not bool(none.dual.any())
    assert torch.allclose(none.loss, 3 * three.exp())


@pytest.mark.parametrize("kind", ["cispo", "reinforce"])
def test_a_detached_ratio_is_a_constant_of_the_gradient(kind: str) -> None:
    """Against finite differences of the loss whose weights are those of the point."""
    old = log_probs(START) + numbers(5, len(ROWS)) * 0.5
    part = batch(old=old, behaviour=old, advantage=advantages(of_sequences=False))
    loss = Loss(kind=kind)
    objective = PolicyObjective(loss=loss, kl=Kl(), correction="bypass")
    upper = 1 + loss.clip_high if kind == "cispo" else 2.0
    fixed = importance(log_probs(START), old).clamp(max=upper)
    assert bool((fixed == upper).any())

    def surrogate(weights: torch.Tensor) -> torch.Tensor:
        return -(fixed * part.advantage * log_probs(weights)).sum() / len(ROWS)

    found = gradient(lambda w: total(w, objective, part), START)
    assert torch.allclose(found, numeric(surrogate, START), atol=1e-8)


@pytest.mark.parametrize("kind", LOSSES)
def test_on_policy_is_reinforce(kind: str) -> None:
    """The gradient is REINFORCE's for every kind, the value -A where the loss is of ratios."""
    old = log_probs(START)
    part = batch(old=old, behaviour=old, advantage=advantages())
    loss = Loss(kind=kind)
    objective = PolicyObjective(loss=loss, kl=Kl(), correction="bypass")
    token_loss, _ = objective(part, old, torch.zeros_like(old))
    if kind in ("ppo", "gspo", "gmpo", "distill"):
        assert torch.allclose(token_loss, -part.advantage)
    elif kind == "sapo":
        tau = torch.where(part.advantage > 0, loss.tau_positive, loss.tau_negative)
        assert torch.allclose(token_loss, -2 * part.advantage / tau)
    else:
        assert torch.allclose(token_loss, -part.advantage * old)
    found = gradient(lambda w: total(w, objective, part, loss.aggregation), START)
    shares = torch.tensor(token_weights(COUNTS, loss.aggregation)).double()
    share = shares.repeat_interleave(torch.tensor(COUNTS))
    expected = gradient(lambda w: -(share * part.advantage * log_probs(w)).sum(), START)
    assert torch.allclose(found, expected)


def test_gspo_and_gmpo_are_losses_of_whole_sequences() -> None:
    """By their papers' own sequence forms, values and gradients."""
    old = log_probs(START) + numbers(5, len(ROWS)) * 0.5
    part = batch(old=old, behaviour=old, advantage=advantages())

    def by_sequence(weights: torch.Tensor, kind: str) -> torch.Tensor:
        whole = torch.zeros((), dtype=torch.float64)
        for number in (0, 3, 5):
            here = number == ROWS
            a = part.advantage[here][0]
            gap = (log_probs(weights) - old)[here]
            if kind == "gspo":
                s = gap.mean().exp()
                whole = whole + torch.maximum(-a * s, -a * s.clamp(0.95, 1.05))
            else:
                cut = gap.clamp(-0.4, 0.4)
                one_sided = torch.minimum(gap, cut) if a > 0 else torch.maximum(gap, cut)
                whole = whole - a * one_sided.mean().exp()
        return whole / 3

    for loss in (Loss(kind="gspo", clip_low=0.05, clip_high=0.05), Loss(kind="gmpo")):
        objective = PolicyObjective(loss=loss, kl=Kl(), correction="token_truncate")

        def found(weights: torch.Tensor, *, objective: PolicyObjective = objective) -> torch.Tensor:
            return total(weights, objective, part, "seq-mean-token-mean")

        def expected(weights: torch.Tensor, *, kind: str = loss.kind) -> torch.Tensor:
            return by_sequence(weights, kind)

        assert torch.allclose(found(START), expected(START))
        assert torch.allclose(gradient(found, START), gradient(expected, START))


@pytest.mark.parametrize("estimator", KL_ESTIMATORS)
def test_the_kl_term_has_the_gradient_of_its_estimator(estimator: str) -> None:
    old = log_probs(START)
    part = batch(old=old, behaviour=old, advantage=torch.zeros_like(old))
    term = Kl(coefficient=0.3, estimator=estimator)
    objective = PolicyObjective(loss=Loss(), kl=term, correction="bypass")
    d = (old - REFERENCE).detach()
    slope = {"k1": torch.ones_like(d), "abs": d.sign(), "k3": 1 - (-d).exp()}.get(estimator, d)
    expected = gradient(lambda w: 0.3 * (slope * log_probs(w)).sum() / len(ROWS), START)
    found = gradient(lambda w: total(w, objective, part), START)
    assert torch.allclose(found, expected)
    value = {"k1": d, "k2": d.square() / 2, "abs": d.abs()}.get(estimator, (-d).exp() - 1 + d)
    assert torch.allclose(kl(old, REFERENCE, term.estimator), value)
    if estimator != "k3+":  # its gradient is on purpose not that of its value
        numbers_ = numeric(lambda w: total(w, objective, part), START)
        assert torch.allclose(found, numbers_, atol=1e-8)


def test_the_entropy_bonus_raises_the_entropy() -> None:
    old = log_probs(START)
    part = batch(old=old, behaviour=old, advantage=torch.zeros_like(old))
    objective = PolicyObjective(loss=Loss(entropy=0.5), kl=Kl(), correction="bypass")
    assert objective.entropy == "loss"

    def value(weights: torch.Tensor) -> torch.Tensor:
        return total(weights, objective, part)

    assert float(value(START)) == pytest.approx(-0.5 * float(entropies(START).mean()))
    found = gradient(value, START)
    assert torch.allclose(found, numeric(value, START), atol=1e-8)
    assert float(entropies(START - 0.1 * found).mean()) > float(entropies(START).mean())


@given(st.lists(st.integers(0, 9), max_size=8), st.integers(0, 8))
def test_any_split_of_a_batch_adds_up_to_the_same_loss(counts: list[int], cut: int) -> None:
    """Weights are made once for the whole batch; parts just add."""
    for mode in AGGREGATIONS:
        weights = token_weights(counts, mode)
        total = sum(w * c for w, c in zip(weights, counts, strict=True))
        parts = [
            sum(w * c for w, c in zip(weights[a:b], counts[a:b], strict=True))
            for a, b in ((0, cut), (cut, len(counts)))
        ]
        assert total == pytest.approx(sum(parts))
        if mode.endswith("-mean") and any(counts):
            assert total == pytest.approx(1.0)
