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
    Metrics(key="reward", title="Reward of each task", unit="mean of the batch", values={}),
    Metrics(key="loss", title="Loss of each task", unit="part of the loss", values={}),
    Metrics(key="entropy", title="Entropy of each task", unit="nats a token", values={}, low=0),
    Metrics(
        key="kl_reference", title="KL to the reference of each task", unit="nats a token", values={}
    ),
    Metrics(
        key="response_length",
        title="Length of each task",
        unit="tokens a trajectory",
        values={},
        low=0,
    ),
    Metrics(key="calls", title="Tool calls of each task", unit="calls a trajectory", values={}),
    Metrics(key="grad_norm", title="Gradient of each task", unit="norm", values={}, low=0),
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
        key="conflict",
        title="Do the tasks pull in one direction?",
        unit="cosine of gradients",
        values={},
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
