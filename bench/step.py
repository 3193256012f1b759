"""`bench step`: where the seconds of a training step go, from what runs wrote about themselves.

The layout is that of VerlTool's table of step times (arXiv:2509.01055, table 12): a row a run, a
column a part. Parts are means over the steps, so they add up to the mean step. What the learner
waits for is the rollout: sampling, tools and rewards of the batch overlap in the engine, and what
is done while the learner trains is not waited for. Their own seconds stand apart, a trajectory's.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from bench.errors import BenchError
from console.compare.runs import Run, read_runs
from console.errors import ConsoleError

PARTS = ("rollout", "log-probs", "update", "publish", "checkpoint", "other")
OF_A_TRAJECTORY = ("generate", "tool", "reward")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One run: means over `steps` steps.

    parts: seconds of each of PARTS; they add up to `step`. None: the learner that wrote the run did
    not tell them, and they are part of `update`. trajectory: seconds of a trajectory,
    of each of OF_A_TRAJECTORY. tokens: put through the model in training, a second of `update` and
    `log-probs`.
    """

    run: str
    steps: int
    trajectories: float
    step: float
    parts: dict[str, float | None]
    trajectory: dict[str, float]
    tokens_per_s: float


def step(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Run folders of `learner run`.", show_default=False),
    ],
    skip: Annotated[int, typer.Option(min=0, help="First steps that do not count.")] = 1,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write the rows there.")
    ] = None,
) -> None:
    """Tell where the seconds of a training step go: rollout, log-probs, update, publish.

    Reads learner.jsonl of each run, also while the run goes on. The first steps warm up and are
    left out (--skip). A checkpoint's seconds are spread over the steps between two.
    """
    try:
        rows = [row_of(run, skip) for run in read_runs(runs)]
    except (BenchError, ConsoleError, OSError) as error:
        typer.echo(f"bench: {error}", err=True)
        raise typer.Exit(1) from error
    Console(width=None if sys.stdout.isatty() else 120).print(table(rows), trajectories(rows))
    if json_file is not None:
        json_file.write_text(
            json.dumps({"rows": [asdict(row) for row in rows]}, indent=1) + "\n", encoding="utf-8"
        )


def row_of(run: Run, skip: int) -> Row:
    """Means over the run's steps but the first `skip`. BenchError where none is left."""
    timed = [line for line in run.metrics.values() if {"step_s", "lease_s", "train_s"} <= set(line)]
    lines = timed[skip:]
    if not lines:
        raise BenchError(
            f"{run.name} has {len(timed)} steps of `learner run` with their seconds, and the first "
            f"{skip} do not count: wait for more, or lower --skip"
        )

    def mean(name: str) -> float:
        return sum(line.get(name, 0.0) for line in lines) / len(lines)

    told = all("logprobs_s" in line for line in lines)
    parts: dict[str, float | None] = {
        "rollout": mean("lease_s"),
        "log-probs": mean("logprobs_s") if told else None,
        "update": mean("train_s") - (mean("logprobs_s") if told else 0.0),
        "publish": mean("export_s") + mean("publish_s"),
        "checkpoint": mean("checkpoint_s"),
    }
    whole = mean("step_s")
    return Row(
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


def table(rows: Sequence[Row]) -> Table:
    """A row a run, seconds of a step; below it the shares."""
    out = Table(title="seconds of a training step", box=SIMPLE)
    out.add_column("run", overflow="fold")
    for name in ("steps", *PARTS, "step", "tokens/s"):
        out.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        parts = [row.parts[name] for name in PARTS]
        seconds = [_shown(part, "{:.2f}") for part in (*parts, row.step)]
        out.add_row(row.run, f"{row.steps}", *seconds, f"{row.tokens_per_s:.0f}")
        if row.step:
            out.add_row("", "", *(_shown(part and part / row.step, "{:.0%}") for part in parts))
    return out


def _shown(value: float | None, form: str) -> str:
    return "unknown" if value is None else form.format(value)


def trajectories(rows: Sequence[Row]) -> Table:
    """A row a run, seconds of a mean trajectory, which overlap with those of others."""
    out = Table(title="seconds of a trajectory", box=SIMPLE)
    out.add_column("run", overflow="fold")
    for name in ("a step", *OF_A_TRAJECTORY):
        out.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        seconds = (f"{row.trajectory[name]:.2f}" for name in OF_A_TRAJECTORY)
        out.add_row(row.run, f"{row.trajectories:.0f}", *seconds)
    return out
