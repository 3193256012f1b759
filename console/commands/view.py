"""`toolwright view`: the live view of a run, which another terminal or machine may run; with
`--web` the trajectories of runs in a browser."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer

from console.engine_option import EngineAddress
from console.errors import exit_on_error

EPILOG = (
    "Exit codes: that of the run, where `toolwright run` started it; 0 for a run by hand that is "
    "over; 1 for a run that was killed, and for a folder that is not a run's; 130 when Ctrl-C "
    "ended the view. The run goes on then. With --web: 0 when Ctrl-C or SIGTERM ended it, 1 where "
    "it could not begin."
)


def view(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(
            help="a run folder; with --web any number, or folders of run folders",
            metavar="RUN...",
            show_default=False,
        ),
    ] = None,
    web: Annotated[
        bool, typer.Option("--web", help="serve the trajectories as pages for a browser")
    ] = False,
    listen: Annotated[
        str, typer.Option(help="HOST:PORT of the pages; port 0 is a free one")
    ] = "127.0.0.1:8400",
    engine: EngineAddress = "",
) -> None:
    """Watch a run that another terminal or machine runs, until it ends.

    Reads the run folder and asks the engine, and changes nothing. Lines take the panel's place
    where the output is no terminal.

    With --web it serves pages instead, until Ctrl-C: every trajectory of the runs in a table to
    filter, sort and search, and each one token by token, with its calls and its group. Without RUN
    it shows the runs below the folder where you stand. Anything but a loopback address asks for the
    bearer token of TOOLWRIGHT_TOKEN.
    """
    if web:
        _serve(runs or [Path()], listen)
    elif runs is None or len(runs) != 1:
        raise typer.BadParameter("name one run folder; several are for --web", param_hint="RUN")
    else:
        _watch(runs[0], engine)


def _watch(run: Path, engine: str) -> None:
    from console.record.course import read_course
    from console.watch.screen import Screen
    from console.watch.watching import last_words, watch

    with exit_on_error():
        try:
            ended = asyncio.run(watch(run, Screen(), engine))
        except KeyboardInterrupt:
            raise typer.Exit(130) from None
        said = last_words(ended, read_course(run))
    print(f"toolwright: {said}", file=sys.stderr if ended.status else sys.stdout)
    raise typer.Exit(ended.status)


def _serve(runs: list[Path], listen: str) -> None:
    from console.web.serving import serve

    with exit_on_error():
        asyncio.run(serve(runs, listen))
