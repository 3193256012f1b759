"""`toolwright stop RUN`: ends a run that another terminal started."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from console.engine_option import EngineAddress
from console.errors import exit_on_error


def stop(
    run: Annotated[Path, typer.Argument(help="the run's folder", show_default=False)],
    now: Annotated[
        bool, typer.Option("--now", help="end its processes at once, without a checkpoint")
    ] = False,
    engine: EngineAddress = "",
) -> None:
    """Stop a run in order, as Ctrl-C does where it was started, and wait for its end.

    The learner finishes its step and writes a checkpoint; the run's own command goes on with it.
    Where no `toolwright run` works in the folder, an engine that serves it is drained.
    """
    from console.course.stopping import stop as stop_run

    with exit_on_error():
        typer.echo(stop_run(run, typer.echo, now=now, engine_at=engine))
