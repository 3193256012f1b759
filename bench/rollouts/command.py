"""`bench rollouts`: the command line of what rollouts without barriers save."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from bench.makespan.command import progress, raise_file_limit
from bench.rollouts.scenarios import PACE, SCENARIOS, TRAJECTORIES
from console.errors import ConsoleError
from toolwright.process import loop

_NAMES = ", ".join(SCENARIOS)


def rollouts(
    scenarios: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SCENARIO...]", help=f"Of {_NAMES}; all of them."),
    ] = None,
    trajectories: Annotated[int, typer.Option(min=1, help="Of a batch.")] = TRAJECTORIES,
    pace: Annotated[
        float,
        typer.Option(min=0.01, help="Times as fast as the paper's seconds, tokens and tools."),
    ] = PACE,
    seed: Annotated[int, typer.Option(help="Of turns, lengths and tool times.")] = 0,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write the report there.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="Also write a page with the timelines there.")
    ] = None,
) -> None:
    """Measure what rollouts without barriers save: table 2 of VerlTool (arXiv:2509.01055).

    The same scripted work (tokens, tools, turns, all seeded) is played twice against the same
    scripted sampler. Batch-synchronous: all trajectories write a turn, then all tools run, then the
    next turn begins; a bare loop without tool service and journal. By the engine: each trajectory
    goes on as soon as it can. Beside both stands what the work allows: of every turn the longest
    action and the longest call, or the longest trajectory. Every token is checked against its plan.
    Give it the machine: what else runs there is in the figures. All three take three minutes, at
    --pace 1, with the paper's seconds, eleven.

    \b
    Examples:
        bench rollouts
        bench rollouts deepsearch --pace 1 --json rows.json --html rows.html
    """
    from bench.rollouts.measure import measure
    from bench.rollouts.report import lines, page

    names = scenarios or list(SCENARIOS)
    if unknown := [name for name in names if name not in SCENARIOS]:
        typer.echo(f"bench: {unknown[0]} is no scenario: there are {_NAMES}", err=True)
        raise typer.Exit(2)
    raise_file_limit(trajectories)
    chosen = [SCENARIOS[name] for name in dict.fromkeys(names)]
    try:
        report = loop.run(
            measure(chosen, trajectories=trajectories, pace=pace, seed=seed, say=progress)
        )
    except ConsoleError as error:
        typer.echo(f"bench: {error}", err=True)
        raise typer.Exit(1) from error
    for text in lines(report):
        typer.echo(text)
    if json_file is not None:
        json_file.write_text(json.dumps(report.to_json(), indent=1) + "\n", encoding="utf-8")
    if html is not None:
        html.write_text(page(report), encoding="utf-8")
