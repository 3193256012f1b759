"""The `toolsvc` command line: which commands there are, and where."""

from __future__ import annotations

import typer

from toolwright.commands import commands_of

app = typer.Typer(
    cls=commands_of(
        {
            "serve": "toolsvc.commands.serve:serve",
            "list": "toolsvc.commands.list:list_tools",
            "call": "toolsvc.commands.call:call",
            "check": "toolsvc.commands.check:check",
            "mcp": "toolsvc.commands.mcp:mcp",
            "index": "toolsvc.commands.index:app",
        }
    ),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Serves tools to trajectories, over gRPC, foreign code in real sandboxes.",
)


@app.callback()
def _commands() -> None:
    """A group has a callback of its own, where its commands are not known yet."""


def main() -> None:
    app()


if __name__ == "__main__":
    main()
