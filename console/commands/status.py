"""`toolwright status RUN`: where a run is, in a few lines or as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from console.engine_option import EngineAddress
from console.errors import exit_on_error

if TYPE_CHECKING:
    from console.course.state import State

EPILOG = (
    "Exit codes: 0 the run goes on or is done; else that of `toolwright run`: 1 failed or was "
    "killed, 3 diverged, 4 nothing to learn from, 130 or 143 stopped by a signal."
)


def status(
    run: Annotated[Path, typer.Argument(help="the run's folder", show_default=False)],
    json_: Annotated[bool, typer.Option("--json", help="for machines")] = False,
    engine: EngineAddress = "",
) -> None:
    """Tell where a run is: stage, step, rewards, time left, its processes, how it ended."""
    from console.course.stopping import state
    from toolwright.page.text import plain

    with exit_on_error():
        found = state(run, engine)
    if json_:
        typer.echo(json.dumps(found.as_json(), indent=1))
    else:
        for line in told(found):
            typer.echo(plain(line))
    raise typer.Exit(found.status)


def told(state: State) -> Iterator[str]:
    """The lines for people."""
    from console.watch.status import duration

    yield f"{state.word}: {state.stage or state.sentence}"
    if state.steps is not None:
        left = f", about {duration(state.left_s)} left" if state.left_s is not None else ""
        yield f"step     {state.step} of {state.steps}{left}"
    if state.reward is not None:
        yield f"reward   {state.reward:.3g}"
    for suite, reward in state.evaluations.items():
        yield f"suite    {suite}: mean reward {reward:.3g}"
    for doubt in state.doubts:
        yield f"warning  {doubt}"
    for process in state.processes:
        alive = {True: "lives", False: "has ended", None: "was found"}[process.alive]
        where = f", {process.address}" if process.address else ""
        log = f", {process.log}" if process.log else ""
        yield f"process  {process.name} {alive}{where}{log}"
