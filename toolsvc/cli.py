"""The `toolsvc` command line: which commands there are."""

from __future__ import annotations

from toolsvc.commands.call import call
from toolsvc.commands.check import check
from toolsvc.commands.index import app as index
from toolsvc.commands.isolation import isolation
from toolsvc.commands.list import list_tools
from toolsvc.commands.mcp import mcp
from toolsvc.commands.openenv import openenv
from toolsvc.commands.serve import serve
from toolsvc.commands.tasks import tasks
from toolwright.process.command_line import command_line, start

app = command_line(
    "toolsvc", help="Serves tools to trajectories, over gRPC, foreign code in real sandboxes."
)


app.command()(serve)
app.command("list")(list_tools)
app.command()(call)
app.command()(check)
app.command()(mcp)
app.command()(openenv)
app.command()(tasks)
app.command()(isolation)
app.add_typer(index, name="index")


def main() -> None:
    start(app, "toolsvc", extra="toolsvc")


if __name__ == "__main__":
    main()
