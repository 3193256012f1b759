"""The plots of a recipe with several tasks: `task/NAME/METRIC` and `gradient_cosine/A,B` of
learner.jsonl, a line a task, or a pair. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from console.record.run import RunFiles
from console.record.types import Step
from console.report.plots import Metrics, metric_line, run_label
from toolwright.page.plot import Plot, plot

TASK = "task/"
COSINE = "gradient_cosine/"
MOST_LINES = 8
"""Tasks, or pairs, of a plot: as many as there are colours."""
OF_TASK = (
    Metrics("reward", "Reward of each task", "mean of the batch", {}),
    Metrics("loss", "Loss of each task", "part of the loss", {}),
    Metrics("entropy", "Entropy of each task", "nats a token", {}, low=0),
    Metrics("kl_reference", "KL to the reference of each task", "nats a token", {}),
    Metrics("response_length", "Length of each task", "tokens a trajectory", {}, low=0),
    Metrics("calls", "Tool calls of each task", "calls a trajectory", {}),
    Metrics("grad_norm", "Gradient of each task", "norm", {}, low=0),
)
"""Their values are those of the tasks that there are."""


def of_tasks(runs: Sequence[RunFiles]) -> list[Plot]:
    """Nothing where no run has several tasks."""
    names = _named(runs, TASK)
    if not names:
        return []
    found = [_answered(runs, names)]
    for one in OF_TASK:
        lines = {name: f"{TASK}{name}/{one.key}" for name in names}
        found.append(_drawn(runs, one, lines))
    pairs = {f"{a} and {b}": f"{COSINE}{a},{b}" for a, _, b in map(_pair, _named(runs, COSINE))}
    agree = Metrics(
        "conflict",
        "Do the tasks pull in one direction?",
        "cosine of gradients",
        {},
        note="1: one step serves both. 0: they have nothing to do with each other. Below 0: what "
        "one gains costs the other.",
        low=-1,
        high=1,
    )
    found.insert(1, _drawn(runs, agree, pairs))
    return [one for one in found if one is not None]


def _pair(names: str) -> tuple[str, str, str]:
    return names.partition(",")


def _named(runs: Sequence[RunFiles], prefix: str) -> list[str]:
    """What stands behind the prefix, up to a slash, in the order in which lines told it."""
    found: dict[str, None] = {}
    for run in runs:
        for step in run.record.steps:
            of_step = (name for name in step.values if name.startswith(prefix))
            found |= dict.fromkeys(n.removeprefix(prefix).partition("/")[0] for n in of_step)
    return list(found)[:MOST_LINES]


def _drawn(runs: Sequence[RunFiles], one: Metrics, lines: dict[str, str]) -> Plot | None:
    drawn = [
        metric_line(run, run.record.steps, value, number, name, run_label(run, runs))
        for number, (name, value) in enumerate(lines.items())
        for run in runs
    ]
    return plot(
        f"task:{one.key}", one.title, one.unit, drawn, note=one.note, low=one.low, high=one.high
    )


def _answered(runs: Sequence[RunFiles], names: Sequence[str]) -> Plot | None:
    lines = [
        metric_line(
            run, run.record.steps, partial(_share, task=name), number, name, run_label(run, runs)
        )
        for number, name in enumerate(names)
        for run in runs
    ]
    title = "Trajectories of each task that ended with an answer"
    return plot("task:answered", title, "share of trajectories", lines, low=0, high=1)


def _share(step: Step, *, task: str) -> float | None:
    whole = step.values.get(f"{TASK}{task}/trajectories")
    return step.values.get(f"{TASK}{task}/stop/answered", 0.0) / whole if whole else None
