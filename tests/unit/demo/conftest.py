"""An outcome as a whole demonstration would give it."""

from __future__ import annotations

import pytest

from bench.demo.subject import CALCULATOR
from bench.demo.types import Evaluation, Outcome, ProcessRow, Record, Sample, Step, Trained

STEPS = 50
SUITES = ("heldout", "withheld", "unseen-wordings")


def evaluation(suite: str, step: int, success: float, n: int = 1024) -> Evaluation:
    return Evaluation(suite=suite, step=step, n=n, success=success, stderr=0.01, seconds=4.0)


def sample(step: int, index: int, *, right: bool) -> Sample:
    return Sample(
        suite="heldout-sampled",
        step=step,
        index=index,
        reward=float(right),
        stop_reason="answered",
        answers=("42",),
        segments=(
            ("prompt", "<|im_start|>user\nWhat is 6 < 7 times?<|im_end|>\n<|im_start|>assistant\n"),
            ("model", "<python> print(6*7)</python>"),
            ("tool", "<result> 42</result>"),
            ("model", f"<answer> {42 if right else 13}</answer><|im_end|>"),
        ),
        timings={"wall_s": 0.5, "generate_s": 0.3, "tool_s": 0.1, "open_s": 0.05, "reward_s": 0.01},
    )


def trained(seed: int, after: float, *, control: bool = False) -> Trained:
    before = {"sampled": 0.2, "greedy": 0.25}
    evaluations = [
        evaluation(f"{suite}-{how}", step, before[how] if step == 0 else after)
        for suite in SUITES
        for how in before
        for step in (0, STEPS)
    ]
    evaluations += [evaluation("curve-sampled", s, 0.2 + s / 100, n=192) for s in (0, 25, STEPS)]
    steps = tuple(
        Step(
            step=number,
            reward=number / STEPS,
            values={"response_length": 25.0, "trajectories": 128.0, "step_s": 2.0, "lease_s": 1.0,
                    "train_s": 0.7, "publish_s": 0.1, "export_s": 0.1, "gap_max": 1e-6,
                    "staleness_mean": 0.0},
        )
        for number in range(1, STEPS + 1)
    )  # fmt: skip
    return Trained(
        seed=seed,
        control=control,
        last_step=STEPS,
        record=Record(
            steps=steps,
            evaluations=tuple(evaluations),
            samples=tuple(
                sample(step, index, right=step > 0) for step in (0, STEPS) for index in range(3)
            ),
        ),
    )


def demonstration(*afters: float, control: float | None = None) -> Outcome:
    """One run for each success that it ends with."""
    return Outcome(
        subject=CALCULATOR,
        runs=tuple(trained(seed, after) for seed, after in enumerate(afters, 1)),
        control=None if control is None else trained(1, control, control=True),
        seconds={"servers_start": 12.0, "warm_up": 80.0, "training": 110.0, "total": 200.0},
        versions={"python": "3.11.7", "cores": "2"},
        processes=(ProcessRow(name="sampler", command="serve.py <model>", what="streams tokens"),),
        settings={"recipe": "[run]\nsteps = 50\n", "overrides": {"run.steps": "50"}},
        peak_memory=3 << 30,
        started="2025-01-02T03:04:05+00:00",
    )


@pytest.fixture
def outcome() -> Outcome:
    return demonstration(0.9, 1.0, control=0.2)
