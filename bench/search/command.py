"""`bench search`: the table that a person reads, and the file that a program reads."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from console.errors import ConsoleError

if TYPE_CHECKING:
    # FAISS and bm25s, which the other commands of `bench` have no need of.
    from bench.search.measure import Report, Row


def search(
    passages: Annotated[int, typer.Option(min=1000, help="Passages of the corpus.")] = 100_000,
    queries: Annotated[int, typer.Option(min=1, help="Queries at once.")] = 256,
    seed: Annotated[int, typer.Option(help="Of the corpus, the vectors and the queries.")] = 0,
    encoder: Annotated[
        Path | None,
        typer.Option(help="Encoder to time; without it all-MiniLM-L6-v2 where it is installed."),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write the report there.")
    ] = None,
) -> None:
    """Measure the search tool under a burst of queries.

    Generates a corpus, builds each kind of index with `toolsvc index build`, serves it with
    `toolsvc serve search`, and asks all queries at once over gRPC, every one in a session of its
    own: median of 5 bursts after one that does not count. Vectors of queries are sent along, so
    that the encoder, whose time is stated apart, is no part of the figures.
    """
    try:
        report = asyncio.run(_measure(passages, queries, seed, encoder))
    except ConsoleError as error:
        typer.echo(f"bench: {error}", err=True)
        raise typer.Exit(1) from error
    # Wide enough for the table where the output is no terminal.
    Console(width=None if sys.stdout.isatty() else 140).print(table(report))
    if report.encoder is None:
        print("encoder: none is installed; name one with --encoder FOLDER")
    else:
        print(
            f"encoder {report.encoder.name}: {report.encoder.alone_ms:.1f} ms a query alone, "
            f"{report.encoder.batched_ms:.2f} ms in a batch of {queries}"
        )
    if json_file is not None:
        json_file.write_text(json.dumps(report.to_json(), indent=1))


async def _measure(passages: int, queries: int, seed: int, encoder: Path | None) -> Report:
    from bench.search.measure import Report, measure

    async for found in measure(passages, queries, seed=seed, encoder=encoder):
        if isinstance(found, Report):
            return found
        # A large corpus takes minutes: what is known by now should not have to wait for the rest.
        name, p99 = f"{found.case.kind}, {found.case.data}", found.latency_ms.p99
        print(f"{name}: p99 {p99:.0f} ms, built in {found.build_s:.0f} s", file=sys.stderr)
    raise AssertionError("the last thing measured is the report")


def table(report: Report) -> Table:
    """A row a case, with what is promised of it."""
    out = Table(title=f"{report.queries} queries at once, {report.passages} passages", box=SIMPLE)
    for name in ("index", "data"):
        out.add_column(name, no_wrap=True)
    for name in ("recall@3", "p50 ms", "p90 ms", "p99 ms", "CPU ms", "batch", "build s", "RSS MiB"):
        out.add_column(name, justify="right")
    out.add_column("promised", no_wrap=True)
    for row in report.rows:
        out.add_row(*_cells(row))
    return out


def _cells(row: Row) -> list[str]:
    latency, case = row.latency_ms, row.case
    promised = []
    if case.p99_ms is not None:
        promised.append(f"p99 <= {case.p99_ms:g}")
    if case.recall is not None:
        promised.append(f"recall >= {case.recall:g}")
    return [
        case.kind,
        case.data,
        "" if row.recall is None else f"{row.recall:.3f}",
        f"{latency.p50:.0f}",
        f"{latency.p90:.0f}",
        f"{latency.p99:.0f}",
        f"{row.cpu_ms:.2f}",
        f"{row.batch:.0f}",
        f"{row.build_s:.1f}",
        f"{row.rss_mib:.0f}",
        ", ".join(promised),
    ]
