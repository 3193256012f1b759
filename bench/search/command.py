"""`bench search`: the table that a person reads, and the file that a program reads."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from console.errors import ConsoleError

if TYPE_CHECKING:
    # FAISS and bm25s, which the other commands of `bench` have no need of.
    from bench.search.measure import Case, Report, Row, Size


def search(
    passages: Annotated[int, typer.Option(min=1000, help="Passages of the corpus.")] = 100_000,
    queries: Annotated[int, typer.Option(min=1, help="Queries at once.")] = 256,
    dimensions: Annotated[
        int, typer.Option(min=32, max=8192, help="Numbers of a vector; E5-base has 768.")
    ] = 384,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="INDEX-DATA", help="This row alone; may be repeated. All of them."),
    ] = None,
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
    own: median of 5 bursts after one that does not count. Vectors are generated, and those of
    queries are sent along, so that the encoder, whose time is stated apart, is no part of the
    figures. Everything lies in a temporary folder (TMPDIR) and is removed: per passage some 500
    bytes of corpus, and twice the vectors.
    """
    from bench.search.measure import Size

    size = Size(passages=passages, queries=queries, dimensions=dimensions, seed=seed)
    cases = _cases(only or [])
    print(f"making {passages:,} passages and what the rows need of vectors", file=sys.stderr)
    try:
        report = asyncio.run(_measure(size, cases, encoder))
    except ConsoleError as error:
        typer.echo(f"bench: {error}", err=True)
        raise typer.Exit(1) from error
    # Wide enough for the table where the output is no terminal.
    Console(width=None if sys.stdout.isatty() else 160).print(table(report))
    if report.encoder is None:
        print("encoder: none is installed; name one with --encoder FOLDER")
    else:
        print(
            f"encoder {report.encoder.name}: {report.encoder.alone_ms:.1f} ms a query alone, "
            f"{report.encoder.batched_ms:.2f} ms in a batch of {queries}; "
            f"{report.encoder.passage_cpu_ms:.1f} ms of CPU a passage of an index"
        )
    if json_file is not None:
        json_file.write_text(json.dumps(report.to_json(), indent=1), encoding="utf-8")


def _cases(only: Sequence[str]) -> list[Case]:
    """The rows of these names, in the order of the table."""
    from bench.search.measure import CASES

    names = [case.name for case in CASES]
    for name in only:
        if name not in names:
            raise typer.BadParameter(f"{name!r}: there are {', '.join(names)}", param_hint="--only")
    return [case for case in CASES if case.name in (only or names)]


async def _measure(size: Size, cases: Sequence[Case], encoder: Path | None) -> Report:
    from bench.search.measure import Report, measure

    async for found in measure(size, cases, encoder=encoder):
        if isinstance(found, Report):
            return found
        # A large corpus takes minutes: what is known by now should not have to wait for the rest.
        print(
            f"{found.case.name}: p99 {found.latency_ms.p99:.0f} ms, built in {found.build_s:.0f} s "
            f"with {found.build_mib:.0f} MiB",
            file=sys.stderr,
        )
    raise AssertionError("the last thing measured is the report")


def table(report: Report) -> Table:
    """A row a case, with what is promised of it."""
    title = (
        f"{report.queries} queries at once, {report.passages} passages, "
        f"vectors of {report.dimensions} dimensions"
    )
    out = Table(title=title, box=SIMPLE)
    for name in ("index", "data"):
        out.add_column(name, no_wrap=True)
    for name in ("recall@3", "p50 ms", "p90 ms", "p99 ms", "CPU ms", "batch"):
        out.add_column(name, justify="right")
    for name in ("build s", "build CPU s", "build MiB", "disk MiB", "RSS MiB"):
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
        f"{row.build_cpu_s:.1f}",
        f"{row.build_mib:.0f}",
        f"{row.disk_mib:.0f}",
        f"{row.rss_mib:.0f}",
        ", ".join(promised),
    ]
