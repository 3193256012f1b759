"""Training steps of Qwen3's sizes with random weights: speed, memory, and what a step waits for."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import torch

from bench.gpu.stages import Figures, Scale, machine, profiling
from bench.gpu.stages.models import random_rows, sized_model
from bench.gpu.stages.parity import train_once
from bench.gpu.stages.plain_loop import plain_loop
from bench.gpu.stages.sizes import SIZES
from learner.config.training import TrainingTable
from learner.config.weights import Lora, Optimizer, Recompute
from learner.intake.ledger import Ledger
from learner.model.policy import Policy, load_policy
from learner.ranks import device
from learner.saving.checkpoint import Checkpoints
from toolwright.model.learner_memory import estimate, read_decoder

PEAK_OPERATIONS = 790e12
"""Operations of bfloat16 products a second, measured on H100 and H200 alike."""
STEPS = 3
ENOUGH_FOR_4B = 100e9


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPlan:
    """budget: tokens of a micro-batch. tokens: of a step. longest: tokens of a row. whole: also
    export, checkpoint and the plain loop."""

    size: str
    budget: int
    tokens: int = 65_536
    longest: int = 8192
    recompute: Recompute = "none"
    lora: Lora | None = None
    whole: bool = False


TINY = TrainingPlan(size="tiny", budget=300, tokens=600, longest=128, whole=True)


def train_600m(scale: Scale) -> Figures:
    return _train(TINY if scale.small else TrainingPlan(size="0.6B", budget=16_384, whole=True))


def train_1700m(scale: Scale) -> Figures:
    return _train(TINY if scale.small else TrainingPlan(size="1.7B", budget=8192))


def train_1700m_recompute(scale: Scale) -> Figures:
    plan = TrainingPlan(size="1.7B", budget=16_384, recompute="full")
    return _train(replace(TINY, recompute="full") if scale.small else plan)


def train_4b_lora(scale: Scale) -> Figures:
    lora = Lora(rank=16, alpha=32.0)
    plan = TrainingPlan(size="4B", budget=8192, lora=lora)
    return _train(replace(TINY, lora=lora) if scale.small else plan)


def train_4b(scale: Scale) -> Figures:
    if not scale.small and torch.cuda.mem_get_info()[1] < ENOUGH_FOR_4B:
        return {"left_out": f"needs a device with {ENOUGH_FOR_4B / 1e9:.0f} GB"}
    return _train(TINY if scale.small else TrainingPlan(size="4B", budget=16_384, recompute="full"))


def _train(plan: TrainingPlan) -> Figures:
    folder = sized_model(plan.size)
    rows = random_rows(plan.size, plan.tokens, plan.longest)
    lengths = [row.length for row in rows]
    machine.forget_peak()
    policy = load_policy(
        folder, Optimizer(lr=1e-6), "bfloat16", plan.lora, recompute=plan.recompute
    )
    states = machine.peak_gb()
    seconds = []
    for step in range(STEPS):
        began = time.monotonic()
        train_once(policy, rows, step=step, budget=plan.budget)
        seconds.append(round(time.monotonic() - began, 2))
    figures: Figures = {
        "rows": len(rows),
        "tokens": sum(lengths),
        "step_s": seconds,
        "tokens_per_s": round(sum(lengths) / min(seconds)),
        "mfu": round(SIZES[plan.size].operations(lengths) / min(seconds) / PEAK_OPERATIONS, 3),
        "states_gb": states,
        "peak_gb": machine.peak_gb(),
        "peak_expected_gb": _expected_gb(policy, plan),
    }
    if device.has_cuda():
        part = rows[: max(1, len(rows) // 4)]
        figures["profile"] = {
            "tokens": sum(row.length for row in part),
            **profiling.kernels(lambda: train_once(policy, part, budget=plan.budget)),
        }
        figures["host_waits"] = profiling.host_waits(
            lambda: train_once(policy, part, budget=plan.budget)
        )
    if plan.whole:
        began = time.monotonic()
        policy.save(machine.folder() / "exported")
        exported = time.monotonic()
        figures["export_s"] = round(exported - began, 2)
        figures["offload"] = offload(policy)
        with Checkpoints(machine.folder() / "checkpoints", 1) as checkpoints:
            for name in ("checkpoint", "checkpoint_again"):  # the second finds pinned memory
                started = time.monotonic()
                checkpoints.begin(policy, 1, "aa", {"step": 1}, Ledger())
                figures[f"{name}_copy_s"] = round(time.monotonic() - started, 2)
                checkpoints.settle()
                figures[f"{name}_s"] = round(time.monotonic() - started, 2)
        del policy
        figures["plain_loop"] = plain_loop(folder, rows[: max(4, len(rows) // 4)])
    return figures


def offload(policy: Policy) -> Figures:
    """Seconds and freed memory of the states' way to host memory; the second time it is pinned."""
    found: Figures = {}
    for name in ("first", "again"):
        before, began = torch.cuda.memory_allocated(), time.monotonic()
        policy.states.leave()
        left = time.monotonic()
        found[f"{name}_freed_gb"] = round((before - torch.cuda.memory_allocated()) / 1e9, 2)
        policy.states.come_back()
        found[f"{name}_leave_s"] = round(left - began, 2)
        found[f"{name}_come_back_s"] = round(time.monotonic() - left, 2)
    return found


def _expected_gb(policy: Policy, plan: TrainingPlan) -> float:
    """By the estimate that the learner gives before a run."""
    table = TrainingTable(
        lora=plan.lora,
        precision="bfloat16",
        recompute=plan.recompute,
        tokens_per_microbatch=plan.budget,
    )
    found = estimate(read_decoder(policy.source), table, cuda=device.memory_bytes())
    return float(round(found.peak(plan.budget) / machine.GB, 2))
