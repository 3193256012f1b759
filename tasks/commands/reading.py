"""What `tasks show` and `tasks convert` are told of a set and its files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Name = Annotated[str, typer.Argument(metavar="SET", help="a name of `tasks list`")]
File = Annotated[
    Path,
    typer.Argument(
        help="JSONL, JSON list, CSV, TSV or Parquet; a folder of such files; or a folder of Harbor "
        "task folders",
        show_default=False,
    ),
]
Gold = Annotated[
    Path | None, typer.Option(help="the second file of a set that has one: SQL<TAB>database")
]
Heldout = Annotated[
    bool, typer.Option("--heldout", help="the rows that are kept out of training (deepmath)")
]
QuestionMarks = Annotated[
    bool,
    typer.Option(
        "--question-marks", help="put ? behind bare questions without one, as Search-R1 does"
    ),
]
