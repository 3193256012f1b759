"""`bench tools`: its options, and the files that it writes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from bench.errors import BenchError, UsageError
from bench.measuring.command import JsonFile, write_json
from bench.measuring.report import Report
from bench.tools.load import verltool
from bench.tools.load.workloads import WORKLOADS
from bench.tools.plan import SweepPlan, parse_plan
from bench.tools.reading.compare import compare, read_report, verdicts
from bench.tools.reading.rows import ToolRow, levels
from bench.tools.reading.terminal import Screen, remarks
from bench.tools.run import Subject, run
from console.errors import ConsoleError
from toolwright.process import loop
from toolwright.rpc.options import TOKEN_VARIABLE

_WORKLOADS = "; ".join(f"{one.name} ({one.what})" for one in WORKLOADS.values())


def tools(
    serve_options: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="-- [SERVE OPTIONS]",
            help="What follows -- is given to the `toolsvc serve` that is started.",
        ),
    ] = None,
    workload: Annotated[
        str, typer.Option(help=f"One or more, with commas: {_WORKLOADS}.")
    ] = "hello",
    mode: Annotated[
        str | None,
        typer.Option(
            help="One or more of burst, closed, open, sessions, opens, rush, with commas; without "
            "it a burst and a closed row for each concurrency."
        ),
    ] = None,
    concurrency: Annotated[
        str, typer.Option(help="Sessions, one or more numbers with commas: the sweep.")
    ] = "64,256,1024",
    rate: Annotated[
        str | None, typer.Option(help="Calls a second of --mode open, with commas.")
    ] = None,
    bursts: Annotated[
        int, typer.Option(min=1, help="Bursts that a row is the median of, after one to warm up.")
    ] = 5,
    seconds: Annotated[float, typer.Option(min=0.1, help="Length of a closed or open loop.")] = 5.0,
    grid: Annotated[
        str | None,
        typer.Option(
            help="verltool: the load tests of its paper (tables 9 and 10) beside its figures, "
            "instead of --workload, --mode and --concurrency."
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(help="Measure the service at this address instead of starting one."),
    ] = None,
    workers: Annotated[
        int, typer.Option(min=1, help="Processes of the service that is started.")
    ] = 1,
    json_file: JsonFile = None,
    html: Annotated[Path | None, typer.Option(help="Write it as a page with plots.")] = None,
    compare_with: Annotated[
        Path | None,
        typer.Option("--compare", metavar="OLD.json", help="Say what changed since that report."),
    ] = None,
) -> None:
    """Measure the cost of tool calls under load, beside the cost of gRPC alone.

    Starts `toolsvc serve` with the tools of the workloads, and the floor: a second server whose
    calls do nothing. The same client opens and warms sessions, and then puts each load on both, one
    after the other. Latency counts from the moment at which a call should have begun. CPU time is
    that of the client and of all processes of the server, sandboxes included. A row's `floor`
    columns are the same load on the floor.

    \b
    Modes:
        burst     every session calls once, all at the same instant
        closed    every session calls again as soon as it has its answer
        open      calls arrive at random, --rate a second, answered or not
        sessions  holds all sessions and finds each of them alive; for memory
        opens     new sessions in a row, each to the answer of its first call
        rush      the same, all opened at the same instant

    \b
    Examples:
        bench tools --workload hello --concurrency 64,256,1024 --json hello.json
        bench tools --workload noop --mode closed --concurrency 64,256 --workers 2
        bench tools --workload mixed --mode open --rate 200,500 --concurrency 256
        bench tools --workload sleep --mode burst --bursts 1 --concurrency 1024
        bench tools --workload stateful --mode sessions --concurrency 4096
        bench tools --grid verltool --html verltool.html
        bench tools --compare hello.json
        bench tools -- --isolation compat --ready 64
    """
    screen = Screen()
    plans = _plans(grid, workload, concurrency, mode, rate, bursts=bursts, seconds=seconds)
    old = read_report(compare_with) if compare_with is not None else None
    subject = _subject(target, workers, serve_options or ())
    for file in (json_file, html):
        if file is not None and not (folder := file.resolve().parent).is_dir():
            raise UsageError(f"{file}: there is no folder {folder}; make it first")
    try:
        report = loop.run(run(plans, subject, screen))
    except (BenchError, ConsoleError):
        screen.clear()
        raise
    found = report.to_json()
    changes = compare(old, found) if old is not None else ()
    if old is not None and not changes:
        screen.say(f"{compare_with} has no row of these: compare with a report of the same loads")
    for text in (*_summary(report, grid), *verdicts(changes)):
        screen.say(text)
    write_json(json_file, found)
    if html is not None:
        from bench.tools.reading.page import render

        html.write_text(render(report, changes, published=grid is not None), encoding="utf-8")


def _plans(
    grid: str | None,
    workload: str,
    concurrency: str,
    mode: str | None,
    rate: str | None,
    *,
    bursts: int,
    seconds: float,
) -> Sequence[SweepPlan]:
    if grid is None:
        return [parse_plan(workload, concurrency, mode, rate, bursts=bursts, seconds=seconds)]
    if grid != verltool.NAME:
        raise UsageError(f"--grid {grid}: there is {verltool.NAME}")
    return verltool.plans(bursts=bursts)


def _subject(target: str | None, workers: int, arguments: Sequence[str]) -> Subject:
    if target is not None and (workers > 1 or arguments):
        raise UsageError(
            f"--target {target} runs already: --workers and what follows -- are for a service "
            "that is started"
        )
    token = os.environ.get(TOKEN_VARIABLE, "")
    return Subject(target=target, token=token, workers=workers, arguments=arguments)


def _summary(report: Report[ToolRow], grid: str | None) -> Sequence[str]:
    """Lines below the rows."""
    texts = ["", *remarks(report.rows)]
    if grid is not None:
        texts += ["", *verltool.beside(report.rows)]
    isolation = ", ".join(levels(report.rows)) or "not stated by any answer"
    isolated = f"isolation {isolation}; {report.machine_line}"
    return [*texts, "", isolated, "columns: docs/operate/benchmarks.md"]
