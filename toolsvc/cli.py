"""The `toolsvc` command line: which commands there are."""

from __future__ import annotations

import typer

from toolsvc.commands.check import check
from toolsvc.commands.index import app as index
from toolsvc.commands.serve import serve

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Serves tools to trajectories, over gRPC, foreign code in real sandboxes.",
)


@app.callback()
def _commands() -> None:
    """Keeps `serve` a command of its own while it is the only one."""


app.command()(serve)
app.command()(check)
app.add_typer(index, name="index")


def main() -> None:
    app()
