"""`memory serve`: what an operator may say."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from memory.commands.endings import Unanswerable, one_sentence
from memory.config import MemoryTable
from memory.edge.serving import serve as serve_memory
from memory.opening import SQLITE
from toolwright.process.stderr_log import log_to_stderr
from toolwright.recipe import Recipe, load_recipe


def serve(
    recipe: Annotated[
        Path | None, typer.Argument(help="a run's TOML file with a [memory] table")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="a dotted override, --set memory.delta=0.9; may be repeated"),
    ] = None,
    store: Annotated[
        str, typer.Option(help="a file, or redis://HOST:PORT/DB#NAME; default: the recipe's")
    ] = "",
    listen: Annotated[
        str, typer.Option(help="host:port, or unix:/path; default: the recipe's memory.address")
    ] = "",
    embedder: Annotated[
        str, typer.Option(help="hashing, minilm, or a model's folder; default: the recipe's")
    ] = "",
    metrics_port: Annotated[
        int,
        typer.Option(
            min=0, max=65_535, help="Prometheus on 127.0.0.1; default: the recipe's, or none"
        ),
    ] = 0,
    insecure: Annotated[bool, typer.Option(help="listen off loopback without a token")] = False,
) -> None:
    """Serve a tool memory until SIGTERM.

    With a recipe, its [memory] table names the store and the rules; without a recipe give --store.
    A service that is killed and started again keeps everything that it had answered.
    """
    with one_sentence():
        read = None if recipe is None else load_recipe(recipe, set_ or ())
        if read is not None and "memory" not in read.raw:
            raise Unanswerable(f"{recipe} has no [memory] table: add one, or say --store")
        table = MemoryTable() if read is None else read.table("memory", MemoryTable)
        told = {
            "address": listen,
            "store": store,
            "embedder": embedder,
            "metrics_port": metrics_port,
        }
        table = table.model_copy(update={name: word for name, word in told.items() if word})
        where = store or (_store_of(read, table) if read is not None else "")
        if not where:
            raise Unanswerable("say --store FILE or --store redis://HOST:PORT/DB#NAME, or a recipe")
        log_to_stderr()
        asyncio.run(serve_memory(table, where, insecure=insecure))


def _store_of(recipe: Recipe, table: MemoryTable) -> str:
    """The store of a recipe: a path is relative to the recipe's folder; an address is kept as it
    is, also an invalid one."""
    if not table.store:
        return str(recipe.run_folder / "memory" / SQLITE)
    return table.store if "://" in table.store else str(recipe.resolve(table.store))
