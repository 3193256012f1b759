"""`bench view`: its options, its table and its file."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from bench.measuring.command import JsonFile, print_table, write_json


def view(
    trajectories: Annotated[int, typer.Option(min=8, help="Rows of the table.")] = 100_000,
    folder: Annotated[
        Path | None, typer.Option(help="Keep run and index there, and measure a run that is there.")
    ] = None,
    watch: Annotated[
        float | None, typer.Option(min=1, help="Watch a growing run for so many seconds instead.")
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Measure `toolwright view --web`: reading a run, pages, searches, memory.

    Makes a run in a temporary folder (about 9 KB a trajectory), lets the command read it, and times
    its answers. With --watch the run grows by 20 trajectories a second while two of its pages are
    open in a Chromium; every 30 seconds it prints the memory of pages and server.
    """
    with tempfile.TemporaryDirectory(prefix="bench-view-") as temporary:
        home = folder or Path(temporary)
        figures = _measured(home, trajectories) if watch is None else _watched(home, watch)
    write_json(json_file, figures)


def _measured(home: Path, trajectories: int) -> dict[str, Any]:
    from bench.view.measure import measure

    figures = measure(home, trajectories)
    rows = [
        [one["name"], f"{one['found']:,}", f"{one['cold_s']:.3f}", f"{one['warm_s']:.3f}"]
        for one in figures["questions"]
    ]
    print_table("seconds of an answer", ("question", "found", "first time", "again"), rows)
    for name in ("rows", "read_s", "journal_mib", "index_mib", "peak_mib"):
        print(f"{name:12} {figures[name]:,.0f}")
    return figures


def _watched(home: Path, seconds: float) -> dict[str, Any]:
    from bench.view.watch import watch

    samples: list[dict[str, Any]] = []

    def take(sample: dict[str, Any]) -> None:
        samples.append(sample)
        print(" ".join(f"{name} {value}" for name, value in sample.items()), flush=True)

    watch(home, seconds, take)
    return {"samples": samples}
