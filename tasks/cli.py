"""The `tasks` command line: which commands there are."""

from __future__ import annotations

from tasks.commands.convert import convert
from tasks.commands.list import list_sets
from tasks.commands.make import make
from tasks.commands.show import show
from tasks.commands.verifications import verifications
from toolwright.process.command_line import command_line, start

app = command_line(
    "tasks",
    help="Questions: published sets read as one record, and small worlds made here.",
    epilog="First `tasks list`; then `tasks show SET FILE` tells whether FILE is that set's; then "
    "`tasks convert SET FILE OUTPUT.jsonl`, and OUTPUT.jsonl is a recipe's [task] source. Sets of "
    "software engineering need `tasks verifications` too.",
)

app.command("list")(list_sets)
app.command()(show)
app.command()(convert)
app.command()(make)
app.command()(verifications)


def main() -> None:
    start(app, "tasks", extra="tasks")


if __name__ == "__main__":
    main()
