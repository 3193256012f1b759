"""`bench step`: seconds of each part of a training step, from the logs of runs.

The layout is that of VerlTool's table of step times (arXiv:2509.01055, table 12): a row for each
run, a column for each part. Parts are means over the steps, so they add up to the mean step. The
rollout is the time that the learner waits. Sampling, tools and rewards of a batch overlap in the
engine, also with training, so a second table holds their seconds for a trajectory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from bench.errors import BenchError
from bench.measuring.command import JsonFile, print_table, write_json
from console.compare.runs import read_runs, steps
from console.record.run import RunFiles

PARTS = ("rollout", "log-probs", "update", "publish", "checkpoint", "other")
OF_A_TRAJECTORY = ("generate", "tool", "reward")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRow:
    """One run: means over `steps` steps."""

    run: str
    steps: int
    trajectories: float
    step: float
    parts: dict[str, float | None]
    """Seconds of each of PARTS; they add up to `step`. None for a part that an older learner did
    not write; it is in `update`."""
    trajectory: dict[str, float]
    """Seconds of a trajectory, by OF_A_TRAJECTORY."""
    tokens_per_s: float
    """Tokens put through the model in training, a second of `update` and `log-probs`."""


def step(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Run folders of `learner run`.", show_default=False),
    ],
    skip: Annotated[int, typer.Option(min=0, help="First steps that do not count.")] = 1,
    json_file: JsonFile = None,
) -> None:
    """Print the seconds of a training step: rollout, log-probs, update, publish.

    Reads learner.jsonl of each run, also while the run goes on. The first steps warm up and are
    left out (--skip). A checkpoint's seconds are spread over the steps between two.
    """
    rows = [row_of(run, skip) for run in read_runs(runs)]
    print_table(
        "seconds of a training step",
        ("run", "steps", *PARTS, "step", "tokens/s"),
        [cells for row in rows for cells in _step_cells(row)],
    )
    print_table(
        "seconds of a trajectory",
        ("run", "a step", *OF_A_TRAJECTORY),
        [
            [row.run, f"{row.trajectories:.0f}"]
            + [f"{row.trajectory[name]:.2f}" for name in OF_A_TRAJECTORY]
            for row in rows
        ],
    )
    write_json(json_file, {"rows": [asdict(row) for row in rows]})


def row_of(run: RunFiles, skip: int) -> StepRow:
    """Means over the run's steps but the first `skip`. Raises BenchError without such steps."""
    found = (one.values for one in steps(run))
    timed = [line for line in found if {"step_s", "lease_s", "train_s"} <= set(line)]
    lines = timed[skip:]
    if not lines:
        raise BenchError(
            f"{run.name} has {len(timed)} steps of `learner run` with their seconds, and the first "
            f"{skip} do not count: wait for more, or lower --skip"
        )

    def mean(name: str) -> float:
        return sum(line.get(name, 0.0) for line in lines) / len(lines)

    split = all("logprobs_s" in line for line in lines)
    parts: dict[str, float | None] = {
        "rollout": mean("lease_s"),
        "log-probs": mean("logprobs_s") if split else None,
        "update": mean("train_s") - (mean("logprobs_s") if split else 0.0),
        "publish": mean("export_s") + mean("publish_s"),
        "checkpoint": mean("checkpoint_s"),
    }
    whole = mean("step_s")
    return StepRow(
        run=run.name,
        steps=len(lines),
        trajectories=mean("trajectories"),
        step=whole,
        parts={**parts, "other": max(0.0, whole - sum(filter(None, parts.values())))},
        trajectory={name: mean(f"{name}_s") for name in OF_A_TRAJECTORY},
        tokens_per_s=_tokens(lines),
    )


def _tokens(lines: Sequence[Mapping[str, float]]) -> float:
    """Tokens a second over all steps: a step's rate weighs its seconds."""
    seconds = sum(line["train_s"] for line in lines)
    tokens = sum(line.get("tokens_per_s", 0.0) * line["train_s"] for line in lines)
    return tokens / seconds if seconds else 0.0


def _step_cells(row: StepRow) -> list[list[str]]:
    """Seconds of a step, and below them the shares."""
    parts = [row.parts[name] for name in PARTS]
    seconds = [_shown(part, "{:.2f}") for part in (*parts, row.step)]
    shares = [_shown(part and part / row.step, "{:.0%}") for part in parts] if row.step else []
    lines = [[row.run, f"{row.steps}", *seconds, f"{row.tokens_per_s:.0f}"], ["", "", *shares]]
    return lines if shares else lines[:1]


def _shown(value: float | None, form: str) -> str:
    return "unknown" if value is None else form.format(value)
