"""`bench memory`: the table that a person reads, and the file that a program reads."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    # NumPy, which the other commands of `bench` have no need of.
    from bench.memory.measure import Latency, Report

P99_MS, PROMISED_AT = 20.0, 10_000
"""What is promised of a question, and up to how many tools."""


def memory(
    tools: Annotated[int, typer.Option(min=100, help="Tools in the memory.")] = 10_000,
    questions: Annotated[int, typer.Option(min=10, help="Questions of three subtasks.")] = 300,
    merges: Annotated[int, typer.Option(min=30, help="Groups that come in.")] = 300,
    embedder: Annotated[
        str, typer.Option(help="hashing, minilm, or a sentence-transformers folder.")
    ] = "hashing",
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write the report there.")
    ] = None,
) -> None:
    """Measure the tool memory: questions, alone and while tools come in, merges, and a start.

    Fills a memory in a SQLite file with tools of random words. A question is asked within the
    process: gRPC is no part of the figures.
    """
    from bench.memory.measure import measure
    from memory.errors import Unusable
    from memory.search.embedding import embedder as named

    try:
        embed = named(embedder)[1]()
    except Unusable as error:
        typer.echo(f"bench: {error}", err=True)
        raise typer.Exit(2) from error
    with tempfile.TemporaryDirectory() as folder:
        report = measure(Path(folder), tools, questions, merges, embed)
    Console(width=None if sys.stdout.isatty() else 120).print(table(report))
    print(
        f"{report.merges_per_s:.0f} merges a second; start {report.start_s:.2f} s; an older "
        f"version {report.old_version_s:.2f} s; {report.megabytes:.0f} MB on disk"
    )
    if json_file is not None:
        json_file.write_text(json.dumps(report.to_json(), indent=1), encoding="utf-8")


def table(report: Report) -> Table:
    """A row for each thing that is timed."""
    out = Table(title=f"A memory of {report.nodes} tools", box=SIMPLE)
    out.add_column("what", no_wrap=True)
    for name in ("p50 ms", "p99 ms", "of"):
        out.add_column(name, justify="right")
    out.add_column("promised", no_wrap=True)
    promised = f"p99 <= {P99_MS:g}" if report.nodes <= 1.2 * PROMISED_AT else ""
    rows: list[tuple[str, Latency, str]] = [
        ("question of three subtasks", report.question, promised),
        ("the first of a new version", report.after, promised),
        ("while tools come in without a pause", report.busy, promised),
        ("question, GraphRAG score", report.graphrag, ""),
        ("embedding of one subtask, in all of these", report.embedding, ""),
        ("merge of a group with three new tools", report.merge, ""),
    ]
    for what, latency, told in rows:
        out.add_row(what, f"{latency.p50:.2f}", f"{latency.p99:.2f}", str(latency.count), told)
    return out
