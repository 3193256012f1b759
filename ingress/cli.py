"""The `ingress` command line."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ingress.config import IngressTable
from ingress.errors import StartError
from toolwright.process import loop
from toolwright.process.command_line import command_line, start
from toolwright.process.stderr_log import log_to_stderr
from toolwright.recipe import RecipeError, load_recipe
from toolwright.rpc.errors import ListenError

app = command_line("ingress", help="Serves the policy to outside agents, over HTTP.")


@app.command()
def serve(
    recipe: Annotated[Path, typer.Argument(help="the run's TOML file")],
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="a dotted override, --set ingress.threads=4; may be repeated"),
    ] = None,
    listen: Annotated[
        str, typer.Option(help="host:port; default: the recipe's ingress.address")
    ] = "",
    workers: Annotated[
        int, typer.Option(help="processes that share the address; default: ingress.workers")
    ] = 0,
    worker: Annotated[int, typer.Option("--worker", hidden=True)] = -1,
) -> None:
    """Serve agents until SIGTERM.

    An agent gets a base URL with its trajectory's key, and calls the policy as it calls a model
    server. The engine of the recipe records each call exactly.
    """
    try:
        read = load_recipe(recipe, set_ or ())
        table = read.table("ingress", IngressTable)
        changes = {"address": listen or table.address, "workers": workers or table.workers}
        table = IngressTable.model_validate({**table.model_dump(), **changes})
        from ingress.serving import serve as serve_agents
        from ingress.serving import serve_many

        log_to_stderr()
        if worker >= 0:
            loop.run(serve_agents(read, table.of_worker(worker), worker=True))
        elif table.workers == 1:
            loop.run(serve_agents(read, table))
        else:
            words = ["-m", "ingress.cli", "serve", str(recipe)]
            words += [word for one in set_ or () for word in ("--set", one)]
            loop.run(serve_many(words, table))
    except (StartError, ListenError, RecipeError, OSError) as error:
        print(f"ingress: {error}", file=sys.stderr)
        raise typer.Exit(1) from error


def main() -> None:
    start(app, "ingress", extra="ingress")


if __name__ == "__main__":
    main()
