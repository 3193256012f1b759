"""Reads an existing store for commands, also while a `memory serve` uses it. Nothing is written to
it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from memory.commands.endings import Unanswerable
from memory.graph.changes import from_bytes, read_as
from memory.graph.graph import ToolGraph
from memory.memory import Memory
from memory.opening import STORE_VARIABLE, begun_with, open_log
from memory.search.described import TEXTS, joined, parted
from memory.search.embedding import embedder
from memory.store import Log, pages
from memory.types import Change, Node

Store = Annotated[
    str, typer.Argument(help="a file, or redis://HOST:PORT/DB#NAME", envvar=STORE_VARIABLE)
]
Version = Annotated[int | None, typer.Option(min=0, help="of the memory; default: the newest")]


@contextmanager
def log_of(store: str) -> Iterator[Log]:
    """Raises Unusable if there is no memory."""
    log = open_log(store, embedder=begun_with(store), read_only=True)
    try:
        yield log
    finally:
        log.close()


@contextmanager
def memory_of(store: str) -> Iterator[Memory]:
    """Raises Unusable if there is no memory."""
    kind, text_of = parted(begun_with(store))
    name, make = embedder(kind)
    log = open_log(store, embedder=joined(name, text_of), read_only=True)
    try:
        yield Memory(log, make(), text_of=TEXTS[text_of])
    finally:
        log.close()


def changes_of(log: Log) -> Iterator[Change]:
    """All changes, in order. Raises Unusable."""
    for version, data in enumerate(pages(log, 0), 1):
        with read_as(version):
            change = from_bytes(data)
        yield change


@contextmanager
def graph_of(store: str, version: int | None) -> Iterator[ToolGraph]:
    """The graph of a version, without loading the embedder. Raises NoVersion or Unusable."""
    from memory.history import History

    with log_of(store) as log:
        history = History(log)
        history.refresh(lambda _made: None)
        yield history.newest if version is None else history.at(version)


def node_of(graph: ToolGraph, name: str) -> Node:
    """Raises Unanswerable if the memory has no such tool."""
    node = graph.node(name)
    if node is None:
        raise Unanswerable(
            f"version {graph.version} of the memory has no tool {name!r}: `memory list` names them"
        )
    return node


__all__ = ["Store", "Version", "changes_of", "graph_of", "log_of", "memory_of", "node_of"]
