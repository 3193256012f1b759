"""The command line of `bench view`."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from bench.errors import BenchError


def view(
    trajectories: Annotated[int, typer.Option(min=8, help="Rows of the table.")] = 100_000,
    folder: Annotated[
        Path | None, typer.Option(help="Keep run and index there, and measure a run that is there.")
    ] = None,
    watch: Annotated[
        float | None, typer.Option(min=1, help="Look at a growing run for so many seconds instead.")
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write the figures there.")
    ] = None,
) -> None:
    """Measure `toolwright view --web`: reading a run, pages, searches, memory.

    Makes a run in a temporary folder (about 9 KB a trajectory), lets the command read it, and asks.
    With --watch the run grows by 20 trajectories a second while two of its pages are open in a
    Chromium, and the memory of pages and server is printed every 30 seconds.
    """
    with tempfile.TemporaryDirectory(prefix="bench-view-") as temporary:
        home = folder or Path(temporary)
        try:
            figures = _measured(home, trajectories) if watch is None else _watched(home, watch)
        except (BenchError, OSError) as error:
            typer.echo(f"bench: {error}", err=True)
            raise typer.Exit(1) from error
    if json_file is not None:
        json_file.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


def _measured(home: Path, trajectories: int) -> dict[str, Any]:
    from bench.view.measure import measure

    figures = measure(home, trajectories)
    Console(width=None if sys.stdout.isatty() else 100).print(_table(figures["questions"]))
    for name in ("rows", "read_s", "journal_mib", "index_mib", "peak_mib"):
        print(f"{name:12} {figures[name]:,.0f}")
    return figures


def _watched(home: Path, seconds: float) -> dict[str, Any]:
    from bench.view.watch import watch

    samples: list[dict[str, Any]] = []

    def tell(sample: dict[str, Any]) -> None:
        samples.append(sample)
        print(" ".join(f"{name} {value}" for name, value in sample.items()), flush=True)

    watch(home, seconds, tell)
    return {"samples": samples}


def _table(rows: list[dict[str, Any]]) -> Table:
    out = Table(title="seconds of an answer", box=SIMPLE)
    for name in ("question", "found", "first time", "again"):
        out.add_column(name, justify="left" if name == "question" else "right")
    for row in rows:
        out.add_row(
            row["name"], f"{row['found']:,}", f"{row['cold_s']:.3f}", f"{row['warm_s']:.3f}"
        )
    return out
