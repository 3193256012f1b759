"""`toolwright compare`: the curves of several runs over each other, in one page."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from console.errors import ConsoleError, exit_on_error


def compare(
    runs: Annotated[
        list[Path], typer.Argument(help="run folders", metavar="RUN...", show_default=False)
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="the page")] = Path("compare.html"),
    smooth: Annotated[int, typer.Option(min=1, help="mean over the last SMOOTH steps")] = 5,
) -> None:
    """Lay the curves of several runs over each other, in one HTML page.

    Reads learner.jsonl (else sft/sft.jsonl) and evaluations.jsonl of each run folder, also while
    the run goes on: evaluations with their intervals, rewards, gaps, entropy, lengths, times, by
    step and by hours. A table shows what their recipes differ in. The page needs no
    server and no network.
    """
    from console.atomic import put
    from console.compare.comparison import comparison
    from console.compare.runs import read_runs, remarks
    from console.web.files import file_of

    with exit_on_error():
        found = read_runs(runs)
        for remark in (line for run in found for line in remarks(run)):
            print(f"toolwright: {remark}", file=sys.stderr)
        try:
            title = ", ".join(run.name for run in found)
            put(output, file_of("comparison", title, comparison(found, window=smooth)))
        except OSError as error:
            where = f"{output}: {error.strerror}"
            raise ConsoleError(f"{where}; name another place with --output") from error
    print(output)
