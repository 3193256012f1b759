"""The learner's numbers beside those of an independent step and of transformers."""

from __future__ import annotations

import math

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from bench.gpu.stages import Figures, Scale, independent, machine
from bench.gpu.stages.models import FAMILIES, random_rows, sized_model, small_model
from learner.config.objective import Kl, Loss
from learner.config.weights import Lora, Optimizer
from learner.intake.ledger import Ledger
from learner.model.policy import Model, Policy, load_frozen, load_policy
from learner.ranks import device
from learner.saving.checkpoint import Checkpoints
from learner.training.batch import Row
from learner.training.objective import PolicyObjective
from learner.training.step import score
from learner.training.update import Update, improve

FLOAT32_LIMIT = 1e-5
"""Largest distance from float64: of the mean loss a token, and of the norm relative to it."""
MOVE_LIMIT = 1e-4
"""The same of the weights' moves, where a gradient is large enough to have a sign."""
SIGNED = 1e-5
BFLOAT16_LIMIT = 5e-2
GAP_LIMIT = 0.05
"""Mean difference of bfloat16 log-probs, in nats."""


def train_once(
    policy: Policy,
    rows: list[Row],
    *,
    step: int = 0,
    budget: int = 200,
    kl: float = 0.0,
    reference: Model | None = None,
) -> Update:
    """One optimizer step on all rows; returns when the device has done it."""
    done = improve(
        policy,
        rows,
        PolicyObjective(loss=Loss(), kl=Kl(coefficient=kl), correction="token_truncate"),
        reference=reference,
        updates=1,
        budget=budget,
        step=step,
        steps=10,
        drop_silent=False,
    )
    machine.wait()
    return done


def parity(_scale: Scale) -> Figures:
    """float32 on this device beside float64 on the CPU: loss, gradient norm, moves of weights."""
    figures: Figures = {}
    settings = Optimizer(lr=1e-3, clip=0.5, weight_decay=0.1)
    for family in FAMILIES:
        folder = small_model(family)
        rows = independent.rows_near(folder, count=9, seed=3)
        policy = load_policy(folder, settings, "float32")
        done = train_once(policy, rows, kl=0.2, reference=load_frozen(folder, "float32"))
        policy.save(machine.folder() / "moved")
        model = independent.load(folder)
        before = {name: p.detach().clone() for name, p in model.named_parameters()}
        want = independent.step(model, independent.load(folder), rows, settings, 0.2)
        after = dict(independent.load(machine.folder() / "moved").named_parameters())
        difference = whole = 0.0
        for name, parameter in model.named_parameters():
            signed = want.gradients[name].abs() > SIGNED
            moved = (parameter.detach() - before[name])[signed]
            ours = (after[name].detach() - before[name])[signed]
            difference += float((ours - moved).square().sum())
            whole += float(moved.square().sum())
        figures[family] = {
            "loss": abs(done.sums["loss"] - want.loss),
            "norm": abs(done.grad_norm - want.norm) / want.norm,
            "move": math.sqrt(difference / whole),
        }
        found = figures[family]
        if max(found["loss"], found["norm"]) > FLOAT32_LIMIT or found["move"] > MOVE_LIMIT:
            raise AssertionError(f"too far from float64: {figures}")
    return figures


def bfloat16(_scale: Scale) -> Figures:
    """Loss near float64's, the same gradient for any micro-batch size, resume to the bit."""
    folder = small_model("qwen3-tied")
    rows = independent.rows_near(folder, count=9, seed=3)
    adam = Optimizer(lr=1e-3, clip=0.5)
    want = independent.step(independent.load(folder), None, rows, adam, 0.0)
    figures: Figures = {}
    for name, settings, lora in (
        ("adam", adam, None),
        ("muon", Optimizer(lr=1e-3, clip=0.5, kind="muon"), None),
        ("lora", adam, Lora(rank=4, alpha=8.0)),
    ):
        torch.manual_seed(1)  # adapters begin at random
        policy = load_policy(folder, settings, "bfloat16", lora)
        first = train_once(policy, rows)
        saved = Checkpoints(machine.folder() / f"checkpoints-{name}", 2)
        saved.save(policy, 1, "aa", {"step": 1}, Ledger())
        went_on = train_once(policy, rows, step=1)
        newest = saved.latest()
        assert newest is not None
        again = load_policy(folder, settings, "bfloat16", lora)
        saved.load(again, newest)
        resumed = train_once(again, rows, step=1)
        torch.manual_seed(1)
        one_by_one = train_once(load_policy(folder, settings, "bfloat16", lora), rows, budget=1)
        figures[name] = {
            "loss": abs(first.sums["loss"] - want.loss),
            "norm": None if lora else abs(first.grad_norm - want.norm) / want.norm,
            "one_by_one": abs(one_by_one.grad_norm - first.grad_norm) / first.grad_norm,
            "resumed_to_the_bit": (went_on.sums["loss"], went_on.grad_norm)
            == (resumed.sums["loss"], resumed.grad_norm),
        }
        found = figures[name]
        if (
            max(found["loss"], found["one_by_one"]) > BFLOAT16_LIMIT
            or not found["resumed_to_the_bit"]
        ):
            raise AssertionError(f"not near float64, or not resumed: {figures}")
    return figures


def log_probs(scale: Scale) -> Figures:
    """Differences in nats between the learner's and transformers' log-probs of the same folder."""
    name = "tiny" if scale.small else "0.6B"
    folder = sized_model(name)
    rows = random_rows(name, 4096, 1024)
    scored, _ = score(load_frozen(folder, "bfloat16"), rows, 4096, "old")
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.bfloat16, trust_remote_code=False
    )
    model.to(device.device())
    gaps = []
    for row in scored:
        ids = torch.from_numpy(row.tokens).to(device.device())[None]
        with torch.no_grad():
            every = torch.log_softmax(model(ids).logits[0, :-1].float(), -1)
        theirs = every.gather(-1, ids[0, 1:, None])[:, 0].cpu().numpy()
        assert row.old is not None
        gaps.append(np.abs(theirs - row.old[1:])[row.target[1:]])
    gap = np.concatenate(gaps)
    if gap.mean() > GAP_LIMIT:
        raise AssertionError(f"a mean difference of {gap.mean():.3f} nats")
    return {"model": name, "tokens": len(gap), "mean": float(gap.mean()), "max": float(gap.max())}
