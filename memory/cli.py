"""The `memory` command line: which commands there are."""

from __future__ import annotations

from memory.commands.list import list_tools
from memory.commands.report import report
from memory.commands.serve import serve
from memory.commands.share import copy, export, import_tools
from memory.commands.show import show
from toolwright.process.command_line import command_line, start

app = command_line(
    "memory", help="The tool-graph memory: tools that agents made live on and are found again."
)

app.command()(serve)
app.command("list")(list_tools)
app.command()(show)
app.command()(report)
app.command()(export)
app.command("import")(import_tools)
app.command()(copy)


def main() -> None:
    start(app, "memory", extra="memory")


if __name__ == "__main__":
    main()
