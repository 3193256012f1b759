"""`bench search`: its options, its table and its file."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bench.measuring.command import JsonFile, print_table, write_json

if TYPE_CHECKING:
    # FAISS and bm25s, which the other commands of `bench` do not need.
    from bench.search.measure import Case, SearchRow

COLUMNS: tuple[tuple[str, Callable[[SearchRow], str]], ...] = (
    ("index", lambda row: row.case.kind),
    ("data", lambda row: row.case.data),
    ("promised", lambda row: _promised(row.case)),
    ("threads", lambda row: str(row.setting.threads)),
    ("window ms", lambda row: f"{row.setting.window_ms:g}"),
    ("recall@3", lambda row: "" if row.recall is None else f"{row.recall:.3f}"),
    ("queries/s", lambda row: f"{row.queries_s:.0f}"),
    ("p50 ms", lambda row: f"{row.latency_ms.p50:.0f}"),
    ("p90 ms", lambda row: f"{row.latency_ms.p90:.0f}"),
    ("p99 ms", lambda row: f"{row.latency_ms.p99:.0f}"),
    ("CPU ms", lambda row: f"{row.cpu_ms:.2f}"),
    ("batch", lambda row: f"{row.batch:.0f}"),
    ("build s", lambda row: f"{row.build_s:.1f}"),
    ("build CPU s", lambda row: f"{row.build_cpu_s:.1f}"),
    ("build MiB", lambda row: f"{row.build_mib:.0f}"),
    ("disk MiB", lambda row: f"{row.disk_mib:.0f}"),
    ("RSS MiB", lambda row: f"{row.rss_mib:.0f}"),
)


def search(
    passages: Annotated[
        int,
        typer.Option("--passages", "--vectors", min=1000, help="Passages, with a vector each."),
    ] = 100_000,
    queries: Annotated[int, typer.Option(min=1, help="Queries at once.")] = 256,
    dimensions: Annotated[
        int, typer.Option(min=32, max=8192, help="Numbers of a vector; E5-base has 768.")
    ] = 384,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="INDEX-DATA", help="This row alone; may be repeated. All of them."),
    ] = None,
    threads: Annotated[
        str, typer.Option(help="Values of search.threads to measure, as 1,2.")
    ] = "1",
    window: Annotated[
        str, typer.Option(help="Values of search.window_ms to measure, as 0,2.")
    ] = "0",
    seed: Annotated[int, typer.Option(help="Seed of corpus, vectors and queries.")] = 0,
    encoder: Annotated[
        Path | None,
        typer.Option(help="Encoder to time; without it all-MiniLM-L6-v2 if it is installed."),
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Measure the search tool under a burst of queries.

    Generates a corpus, builds each kind of index with `toolsvc index build` and serves it with
    `toolsvc serve search`. Then it sends all queries at once over gRPC, each in a session of its
    own. A row is the median of 5 bursts after one to warm up. Vectors of queries are generated and
    sent along, so the encoder is no part of the figures; its time is printed below. All data lies
    in a temporary folder (TMPDIR): some 500 bytes of corpus a passage, and twice the vectors.
    """
    from bench.search.measure import Setting, Size, measure

    settings = [
        Setting(threads=int(count), window_ms=wait)
        for count in _numbers(threads, "--threads", least=1)
        for wait in _numbers(window, "--window", least=0)
    ]
    size = Size(passages=passages, queries=queries, dimensions=dimensions, seed=seed)
    cases = _cases(only or [])
    print(f"making {passages:,} passages and what the rows need of vectors", file=sys.stderr)
    report = asyncio.run(measure(size, cases, settings=settings, encoder=encoder, say=_say))
    print_table(
        f"{queries} queries at once, {passages} passages, vectors of {dimensions} dimensions",
        [name for name, _ in COLUMNS],
        [[cell(row) for _, cell in COLUMNS] for row in report.rows],
        left=3,
    )
    if (timed := report.about["encoder"]) is None:
        print("encoder: none is installed; name one with --encoder FOLDER")
    else:
        print(
            f"encoder {timed['name']}: {timed['alone_ms']:.1f} ms a query alone, "
            f"{timed['batched_ms']:.2f} ms in a batch of {queries}; "
            f"{timed['passage_cpu_ms']:.1f} ms of CPU a passage of an index"
        )
    write_json(json_file, report.to_json())


def _cases(only: Sequence[str]) -> list[Case]:
    """The rows of these names, in the order of the table."""
    from bench.search.measure import CASES

    names = [case.name for case in CASES]
    for name in only:
        if name not in names:
            raise typer.BadParameter(f"{name!r}: there are {', '.join(names)}", param_hint="--only")
    return [case for case in CASES if case.name in (only or names)]


def _numbers(words: str, option: str, *, least: float) -> list[float]:
    """Numbers between commas."""
    try:
        numbers = [float(word) for word in words.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < least:
        raise typer.BadParameter(
            f"{words!r}: give numbers from {least:g} on, with commas", param_hint=option
        )
    return numbers


def _say(row: SearchRow) -> None:
    print(
        f"{row.case.name}, threads {row.setting.threads}, window {row.setting.window_ms:g} ms: "
        f"{row.queries_s:.0f} queries/s, p99 {row.latency_ms.p99:.0f} ms, "
        f"built in {row.build_s:.0f} s with {row.build_mib:.0f} MiB",
        file=sys.stderr,
    )


def _promised(case: Case) -> str:
    p99 = "" if case.p99_ms is None else f"p99 <= {case.p99_ms:g}"
    recall = "" if case.recall is None else f"recall >= {case.recall:g}"
    return ", ".join(filter(None, (p99, recall)))
