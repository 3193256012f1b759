"""`toolwright report`: a page and a summary of runs, from their files alone."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from console.errors import exit_on_error


def report(
    runs: Annotated[
        list[Path], typer.Argument(help="run folders", metavar="RUN...", show_default=False)
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="the page; report.html in the first run", show_default=False
        ),
    ] = None,
) -> None:
    """Write what a run came to: one HTML page, and summary.json beside it.

    Reads the files of the run folder alone, of any run: over, killed or going on; started by
    `toolwright run`, by hand or on a cluster. Several runs, such as those of other seeds, get a row
    each and their mean; one with learning rate 0 is the control. The verdict is in the headline.
    The last line is summary.json's path.
    """
    from console.report import write

    page = output if output is not None else runs[0] / "report.html"
    with exit_on_error():
        paths = write(runs, page)
    for remark in paths.remarks:
        print(f"toolwright: {remark}", file=sys.stderr)
    for line in paths.lines:
        print(line)
    print(f"report:  {paths.report}\nsummary:\n{paths.summary}")
