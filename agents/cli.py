"""The `agents` command line."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from agents.config import AgentsTable
from agents.errors import StartError
from toolwright.process import loop
from toolwright.process.command_line import command_line, start
from toolwright.process.stderr_log import log_to_stderr
from toolwright.recipe import RecipeError, load_recipe
from toolwright.rpc.errors import ListenError

app = command_line("agents", help="Starts an agent for each trajectory of a recipe.")


@app.command()
def serve(
    recipe: Annotated[Path, typer.Argument(help="the run's TOML file")],
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="a dotted override, --set task.agent.at_once=4; may be repeated"
        ),
    ] = None,
    listen: Annotated[
        str, typer.Option(help="host:port of its health; default: the recipe's agents.address")
    ] = "",
    ingress: Annotated[
        str, typer.Option(help="URL of the ingress; default: the recipe's ingress.address")
    ] = "",
    worker: Annotated[
        str, typer.Option(help="name of this host, stable over restarts; default: the machine's")
    ] = "",
) -> None:
    """Start agents until SIGTERM.

    The engine of the recipe hands out trajectories. Each gets an agent of [task.agent], with a
    folder and a model client's settings of its own. The agents end with this process.
    """
    try:
        read = load_recipe(recipe, set_ or ())
        from agents.serving import serve as serve_agents

        log_to_stderr()
        table = read.table("agents", AgentsTable)
        table = table.model_copy(update={"address": listen or table.address})
        loop.run(serve_agents(read, table, ingress=ingress.rstrip("/"), worker=worker))
    except (StartError, ListenError, RecipeError, OSError) as error:
        print(f"agents: {error}", file=sys.stderr)
        raise typer.Exit(1) from error


def main() -> None:
    start(app, "agents", extra="ingress")


if __name__ == "__main__":
    main()
