"""The `toolsvc` command line: which commands there are."""

from __future__ import annotations

import typer

from toolsvc.commands.call import call
from toolsvc.commands.check import check
from toolsvc.commands.index import app as index
from toolsvc.commands.list import list_tools
from toolsvc.commands.mcp import mcp
from toolsvc.commands.serve import serve

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Serves tools to trajectories, over gRPC, foreign code in real sandboxes.",
)


app.command()(serve)
app.command("list")(list_tools)
app.command()(call)
app.command()(check)
app.command()(mcp)
app.add_typer(index, name="index")


def main() -> None:
    app()


if __name__ == "__main__":
    main()
