"""`toolwright view`: the live view of a run, which another terminal or machine may run."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer

from console.errors import ConsoleError

EPILOG = (
    "Exit codes: that of the run, where `toolwright run` started it; 0 for a run by hand that is "
    "over; 1 for a run that was killed, and for a folder that is none of a run; 130 when Ctrl-C "
    "ended the view. The run goes on then."
)


def view(
    run: Annotated[Path, typer.Argument(help="a run folder", metavar="RUN", show_default=False)],
) -> None:
    """Watch a run that another terminal or machine runs, until it ends.

    Reads the run folder and asks the engine, and changes nothing. Lines take the panel's place
    where the output is no terminal.
    """
    from console.record.course import read_course
    from console.watch.screen import Screen
    from console.watch.watching import last_words, watch

    try:
        ended = asyncio.run(watch(run, Screen()))
    except ConsoleError as error:
        print(f"toolwright: {error}", file=sys.stderr)
        raise typer.Exit(error.status) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    said = last_words(ended, read_course(run))
    print(f"toolwright: {said}", file=sys.stderr if ended.status else sys.stdout)
    raise typer.Exit(ended.status)
