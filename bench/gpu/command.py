"""`bench gpu`: the command line of the proof."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated

import typer

from bench.gpu.stages import STAGES


def gpu(
    stages: Annotated[
        list[str] | None,
        typer.Argument(metavar="[STAGE]...", help="Stages to run; all without one."),
    ] = None,
    small: Annotated[
        bool, typer.Option("--small", help="Sizes for a machine without a GPU.")
    ] = False,
    results: Annotated[
        Path | None,
        typer.Option(help="Folder for the lines, in a file named after the device."),
    ] = None,
    list_stages: Annotated[bool, typer.Option("--list", help="Only list the stages.")] = False,
) -> None:
    """Prove the learner on this machine's GPU: one JSON line a stage.

    A failure stops nothing. All stages take some five minutes on one H100. bench/gpu/README.md says
    how to bring the project to a machine without a network.
    """
    from bench.gpu.driver import run_stages

    if list_stages:
        for name, stage in STAGES.items():
            typer.echo(f"{name:22} {stage.seconds:4} s  {stage.says}")
        return
    chosen = stages or list(STAGES)
    if unknown := [name for name in chosen if name not in STAGES]:
        typer.echo(f"bench: no stage {unknown[0]!r}; the stages are {', '.join(STAGES)}", err=True)
        raise typer.Exit(2)
    lines = []
    for line in run_stages(chosen, small=small):
        typer.echo(json.dumps(line))
        lines.append(line)
    if results is not None:
        results.mkdir(parents=True, exist_ok=True)
        file = results / f"{_device_name(lines)}.jsonl"
        file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        typer.echo(f"bench: wrote {file}", err=True)
    if failed := [line["stage"] for line in lines if "failed" in line]:
        typer.echo(f"bench: failed: {', '.join(failed)}", err=True)
        raise typer.Exit(1)


def _device_name(lines: list[dict[str, object]]) -> str:
    """The device's name as a file name; "cpu" without CUDA or the stage `machine`."""
    for line in lines:
        figures = line.get("figures")
        if line["stage"] == "machine" and isinstance(figures, dict) and "device" in figures:
            return re.sub(r"[^a-z0-9]+", "-", str(figures["device"]).lower()).strip("-")
    return "cpu"
