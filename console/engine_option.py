"""The option `--engine` of the commands that look at a run."""

from __future__ import annotations

from typing import Annotated

import typer

EngineAddress = Annotated[
    str,
    typer.Option(
        metavar="HOST:PORT",
        help="the engine's address, in place of the folder's; needed on another machine",
    ),
]
