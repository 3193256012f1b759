"""Weights & Biases, by its own library; WANDB_PROJECT, WANDB_ENTITY, WANDB_MODE... say where.

One run there is one run folder: its id is kept, and a later start goes on with it. W&B's history
only grows, so a step that was trained again stands there twice, and the later value is the newer
row. Every metric is drawn over the weight version (`step`), that of the warm-up over `sft/step`.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import wandb

from console.track.facts import run_name
from console.track.points import Point, Stream
from console.track.tracker import Memory

PROJECT = "toolwright"
START_S = 60.0


class WeightsAndBiases:
    """One life of the run there."""

    from_start: frozenset[Stream] = frozenset()

    def __init__(self, run: Path, memory: Memory) -> None:
        if not memory.id:
            memory.id = secrets.token_hex(4)
            memory.keep()
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            id=memory.id,
            name=os.environ.get("WANDB_NAME", run_name(run)),
            resume="allow",
            dir=str(run),
            settings=wandb.Settings(
                console="off", silent=True, disable_code=True, init_timeout=START_S
            ),
        )
        self._run.define_metric("step", hidden=True)
        self._run.define_metric("sft/step", hidden=True)
        self._run.define_metric("*", step_metric="step")
        self._run.define_metric("sft/*", step_metric="sft/step")

    def write(self, points: Sequence[Point]) -> None:
        for point in points:
            head = "sft/" if point.stream == "sft" else ""
            values = {f"{head}{name}": value for name, value in point.values.items()}
            self._run.log({**values, f"{head}step": point.step})

    def describe(self, settings: Mapping[str, Any]) -> None:
        self._run.config.update(dict(settings), allow_val_change=True)

    def finish(self, results: Mapping[str, Any], *, over: bool) -> None:
        for name, value in results.items():
            self._run.summary[name] = value
        self._run.finish()
