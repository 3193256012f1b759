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
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write the figures there.")
    ] = None,
) -> None:
    """Measure `toolwright view --web`: reading a run, pages, searches, memory.

    Makes a run in a temporary folder (about 6 KB a trajectory), lets the command read it, and asks.
    """
    from bench.view.measure import measure

    with tempfile.TemporaryDirectory(prefix="bench-view-") as home:
        try:
            figures = measure(Path(home), trajectories)
        except (BenchError, OSError) as error:
            typer.echo(f"bench: {error}", err=True)
            raise typer.Exit(1) from error
    Console(width=None if sys.stdout.isatty() else 100).print(_table(figures["questions"]))
    for name in ("rows", "read_s", "journal_mib", "index_mib", "peak_mib"):
        print(f"{name:12} {figures[name]:,.0f}")
    if json_file is not None:
        json_file.write_text(json.dumps(figures, indent=1) + "\n")


def _table(rows: list[dict[str, Any]]) -> Table:
    out = Table(title="seconds of an answer", box=SIMPLE)
    for name in ("question", "rows found", "first time", "again"):
        out.add_column(name, justify="left" if name == "question" else "right")
    for row in rows:
        again = f"{row['warm_s']:.3f}" if row["warm_s"] else ""
        out.add_row(row["name"], f"{row['found']:,}", f"{row['cold_s']:.3f}", again)
    return out
