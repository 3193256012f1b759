"""`bench engine`: its options, and the files that it writes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bench.engine.loads import EVERY, LOADS, steady
from bench.engine.plan import SHORTEST_ACTION
from bench.errors import UsageError
from bench.measuring.command import (
    JsonFile,
    allow_files,
    progress,
    whole_numbers,
    write_json,
)
from toolwright.process import loop

FILES_A_TRAJECTORY, SPARE_FILES = 2, 512
_LISTED = "; ".join(f"{one.name} ({one.what})" for one in LOADS.values())


def engine(
    loads: Annotated[
        list[str] | None,
        typer.Argument(metavar="[LOAD...]", help=f"{_LISTED}. Without one: mixed."),
    ] = None,
    trajectories: Annotated[
        str | None,
        typer.Option(metavar="N[,N]", help="Trajectories; a row for each number and load."),
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(min=1, help="Trajectories in flight (all; steady: 64).")
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(min=0.001, help="Tokens a second of a stream (25; steady 50; VerlTool's 40)."),
    ] = None,
    chunk: Annotated[
        int | None, typer.Option(min=1, help="Tokens in a chunk (8; steady: 1).")
    ] = None,
    pace: Annotated[
        float | None,
        typer.Option(
            min=0.01, help="Factor by which tokens and tools are faster (1; VerlTool's 4)."
        ),
    ] = None,
    every: Annotated[
        int | None,
        typer.Option(
            min=SHORTEST_ACTION, help=f"Of steady alone: tokens from call to call ({EVERY})."
        ),
    ] = None,
    jitter: Annotated[
        float,
        typer.Option(min=0, max=0.99, help="Spread of the sampler's pace; 0: all tick together."),
    ] = 0.0,
    seed: Annotated[int, typer.Option(help="Seed of turns, lengths and tool times.")] = 0,
    slow_sampler: Annotated[
        float | None,
        typer.Option(
            metavar="TIMES", min=1, help="Play once more, with a second sampler so much slower."
        ),
    ] = None,
    workers: Annotated[
        str | None,
        typer.Option(metavar="N[,N]", help="Play once more with so many workers of the engine."),
    ] = None,
    json_file: JsonFile = None,
    html: Annotated[
        Path | None, typer.Option(help="Also write a page with the timelines there.")
    ] = None,
) -> None:
    """Measure the engine between a scripted sampler and a real tool service.

    Every load is a set of seeded plans: tokens, turns, tool times. A row has the makespan beside
    the best possible one, rollouts and CPU time, the event loop's lag, and the delays of each step:
    from the read of a stop's bytes to the call on the gRPC channel, from the sampler's write to the
    tool, and from the tool's answer to the next request. Every token is checked against its plan.

    A loop plays the plans of some loads first, against the same sampler, without tools and journal.
    The bare loop shows the least that asyncio and HTTP cost. The loop with barriers plays turn by
    turn, as a batch-synchronous trainer does: VerlTool's table 2 (arXiv:2509.01055) stands beside
    it. Give the benchmark the whole machine: other processes are in the figures. math, sql and
    deepsearch take three minutes together, and eleven at --pace 1.

    \b
    Examples:
        bench engine steady
        bench engine mixed --trajectories 1024,4096 --json rows.json --html rows.html
        bench engine mixed --trajectories 256 --slow-sampler 10
        bench engine mixed --trajectories 1024 --concurrency 256
        bench engine math sql deepsearch --html rows.html
    """
    names = list(dict.fromkeys(loads or ["mixed"]))
    if unknown := [name for name in names if name not in LOADS]:
        raise UsageError(f"no load {unknown[0]!r}: the loads are {', '.join(LOADS)}")
    if every is not None and "steady" not in names:
        raise UsageError("--every goes with the load steady")
    chosen = [steady(every or EVERY) if name == "steady" else LOADS[name] for name in names]
    wanted = None if trajectories is None else whole_numbers("--trajectories", trajectories)
    numbers = {one.name: wanted or [one.trajectories] for one in chosen}
    if concurrency and any(
        one.beside == "barriers" and concurrency < max(numbers[one.name]) for one in chosen
    ):
        raise UsageError("--concurrency: a loop with barriers needs a place for each trajectory")
    most = max(number for each in numbers.values() for number in each)
    allow_files(FILES_A_TRAJECTORY * most + SPARE_FILES, f"--trajectories {most}")

    from bench.engine.measure import Job, measure
    from bench.engine.report import lines, page

    jobs = [
        Job(
            load=one,
            work=one.work(
                trajectories=number,
                chunk=chunk or one.chunk,
                rate=rate or one.rate,
                pace=pace or one.pace,
                seed=seed,
                jitter=jitter,
            ),
            places=min(concurrency or one.places or number, number),
        )
        for one in chosen
        for number in numbers[one.name]
    ]
    split = [] if workers is None else whole_numbers("--workers", workers)
    report = loop.run(measure(jobs, slow_sampler=slow_sampler, workers=split, say=progress))
    for line in lines(report):
        typer.echo(line)
    write_json(json_file, report.to_json())
    if html is not None:
        html.write_text(page(report), encoding="utf-8")
