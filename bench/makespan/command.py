"""`bench engine`: the delay of one call at a steady load, or the makespan of many trajectories."""

from __future__ import annotations

import json
import resource
from pathlib import Path
from typing import Annotated

import typer

from console.errors import ConsoleError
from toolwright.process import loop

FILES_A_TRAJECTORY, SPARE_FILES = 2, 512
_BOTH = "With and without --trajectories."
_STEADY = "Only without --trajectories."
_MANY = "Only with --trajectories."


def engine(
    trajectories: Annotated[
        str | None,
        typer.Option(
            metavar="N[,N]",
            help="Play N trajectories, all at once, and the bare loop beside them; a row each.",
        ),
    ] = None,
    chunk: Annotated[int | None, typer.Option(help=f"{_MANY} Tokens a chunk (8).", min=1)] = None,
    seed: Annotated[int, typer.Option(help=f"{_MANY} Of turns, lengths and tool times.")] = 0,
    slow_sampler: Annotated[
        float | None,
        typer.Option(
            metavar="TIMES",
            min=1,
            help=f"{_MANY} Once more, with a second sampler that is so many times slower.",
        ),
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help=f"{_MANY} Also write a page with the timeline there.")
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(
            min=1, help=f"{_BOTH} Trajectories in flight (64; with --trajectories all of them)."
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(
            min=0.001, help=f"{_BOTH} Tokens a second of each (50; with --trajectories 25)."
        ),
    ] = None,
    every: Annotated[
        int | None, typer.Option(help=f"{_STEADY} Tokens from one call to the next (20).", min=1)
    ] = None,
    calls: Annotated[
        int | None, typer.Option(help=f"{_STEADY} Calls to measure, at least (5000).", min=1)
    ] = None,
    jitter: Annotated[
        float | None,
        typer.Option(
            help=f"{_STEADY} Spread of the sampler's pace; 0 (the default) = all tick together."
        ),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write the report there.")
    ] = None,
) -> None:
    """Measure the engine between a scripted sampler and a real tool service.

    Without --trajectories: how soon a tool call is sent after its stop token arrived, at a steady
    load of trajectories that call every few tokens. The clock starts when the chunk's bytes are
    read from the socket and stops when the call is handed to the gRPC channel.

    With --trajectories N: how long N trajectories take that all begin at once, beside the longest
    one's own time, and what CPU time each costs the engine. 1 to 8 turns, lognormal lengths of
    actions and answers, lognormal tool times, all seeded. A bare aiohttp loop, without tools and
    journal, first plays the same plans against the same sampler. Every token of every trajectory
    is checked against its plan. Give it the machine: what else runs there is in the figures.

    \b
    Examples:
        bench engine
        bench engine --trajectories 1024,4096 --chunk 8 --json rows.json --html rows.html
        bench engine --trajectories 256 --slow-sampler 10
        bench engine --trajectories 1024 --concurrency 256
    """
    if trajectories is None:
        _refuse(chunk=chunk, slow_sampler=slow_sampler, html=html)
        _steady(concurrency or 64, rate or 50.0, every or 20, calls or 5000, jitter or 0, json_file)
    else:
        _refuse_steady(every=every, calls=calls, jitter=jitter)
        _many(
            _numbers(trajectories), chunk or 8, rate, seed, concurrency, slow_sampler, json_file,
            html,
        )  # fmt: skip


def _steady(
    concurrency: int, rate: float, every: int, calls: int, jitter: float, json_file: Path | None
) -> None:
    from bench.dispatch.measure import lines, measure
    from bench.dispatch.workload import Load

    load = Load(concurrency=concurrency, rate=rate, every=every, calls=calls)
    try:
        report = loop.run(measure(load, jitter=jitter))
    except ConsoleError as error:
        raise _stop(str(error), code=1) from error
    for line in lines(report):
        typer.echo(line)
    _write(json_file, report.to_json())


def _many(
    numbers: list[int],
    chunk: int,
    rate: float | None,
    seed: int,
    places: int | None,
    slow_sampler: float | None,
    json_file: Path | None,
    html: Path | None,
) -> None:
    from bench.makespan.measure import measure
    from bench.makespan.plan import RATE, Workload
    from bench.makespan.report import lines, page

    raise_file_limit(max(numbers))
    workloads = [
        Workload(trajectories=number, chunk=chunk, rate=rate or RATE, seed=seed)
        for number in numbers
    ]
    try:
        report = loop.run(
            measure(workloads, places=places, slow_sampler=slow_sampler, say=progress)
        )
    except ConsoleError as error:
        raise _stop(str(error), code=1) from error
    for line in lines(report):
        typer.echo(line)
    _write(json_file, report.to_json())
    if html is not None:
        html.write_text(page(report), encoding="utf-8")


def _numbers(text: str) -> list[int]:
    numbers = text.split(",")
    if not all(number.strip().isdigit() and int(number) > 0 for number in numbers):
        raise _stop(f"--trajectories {text}: give numbers above 0, such as 1024,4096", code=2)
    return [int(number) for number in numbers]


def _refuse(**given: object) -> None:
    for name, value in given.items():
        if value is not None:
            raise _stop(f"--{name.replace('_', '-')} goes with --trajectories", code=2)


def _refuse_steady(**given: object) -> None:
    for name, value in given.items():
        if value is not None:
            raise _stop(f"--{name} does not go with --trajectories", code=2)


def raise_file_limit(trajectories: int) -> None:
    """A connection a trajectory, at both ends; children inherit the limit."""
    wanted = FILES_A_TRAJECTORY * trajectories + SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        if hard != resource.RLIM_INFINITY and hard < wanted:
            raise _stop(
                f"--trajectories {trajectories} takes {wanted} open files, the limit is {hard}: "
                "raise it with `ulimit -n`",
                code=2,
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def progress(text: str) -> None:
    """A line on stderr of what goes on."""
    typer.echo(f"  {text}", err=True)


def _write(file: Path | None, report: dict[str, object]) -> None:
    if file is not None:
        file.write_text(json.dumps(report, indent=1), encoding="utf-8")


def _stop(message: str, *, code: int) -> typer.Exit:
    typer.echo(f"bench: {message}", err=True)
    return typer.Exit(code)
