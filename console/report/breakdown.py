"""Where the time goes: of a trajectory, and of a training step. Means over one run, seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean

from console.record.types import Record

TRAJECTORY = {
    "open_s": ("open session", "the tool services answer OpenSession"),
    "generate_s": ("generate", "the sampler, its queue included"),
    "tool_s": ("tool", "calls, from the stop token to the observation"),
    "reward_s": ("reward", "the recipe's function"),
}
STEP = {
    "lease_s": ("wait for rollouts", "the engine rolls out the batch; or evaluates"),
    "train_s": ("train", "forward, backward, update"),
    "export_s": ("export", "weights in Hugging Face format, on disk"),
    "publish_s": ("publish", "a running evaluation ends; pause, update, verify, go on"),
    "checkpoint_s": ("checkpoint", "weights, optimizer, ledger"),
}
REST_OF_STEP = ("other", "rows, advantages, metrics")
REST_OF_TRAJECTORY = ("queue", "waits for a place, and what is not measured apart")


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One part of a whole, in seconds."""

    name: str
    what: str
    seconds: float


def of_trajectory(record: Record) -> tuple[Share, ...]:
    """From the training steps where they tell the whole time, else from the samples."""
    rows = [step.values for step in record.steps if "wall_s" in step.values]
    if not rows:
        rows = [sample.timings for sample in record.samples if "wall_s" in sample.timings]
    # A trajectory's wall clock ends before its reward is computed.
    return _shares(
        rows, TRAJECTORY, REST_OF_TRAJECTORY, lambda row: row["wall_s"] + row.get("reward_s", 0.0)
    )


def of_step(record: Record) -> tuple[Share, ...]:
    """From all training steps."""
    rows = [step.values for step in record.steps if "step_s" in step.values]
    return _shares(rows, STEP, REST_OF_STEP, lambda row: row["step_s"])


def _shares(
    rows: Iterable[Mapping[str, float]],
    parts: Mapping[str, tuple[str, str]],
    rest: tuple[str, str],
    whole: Callable[[Mapping[str, float]], float],
) -> tuple[Share, ...]:
    rows = list(rows)
    if not rows:
        return ()
    found = [
        Share(name=name, what=what, seconds=fmean(row.get(key, 0.0) for row in rows))
        for key, (name, what) in parts.items()
    ]
    left = fmean(map(whole, rows)) - sum(share.seconds for share in found)
    return (*found, Share(name=rest[0], what=rest[1], seconds=max(0.0, left)))
