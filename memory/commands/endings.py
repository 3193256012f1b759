"""How a command ends if it fails: one sentence, and exit code 1."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

import typer

from memory.errors import MemoryFault
from toolwright.page.text import plain
from toolwright.recipe import RecipeError
from toolwright.rpc.errors import ListenError


class Unanswerable(Exception):
    """The command line asks for something impossible; the message is one sentence."""


@contextlib.contextmanager
def one_sentence() -> Iterator[None]:
    try:
        yield
    except (MemoryFault, ListenError, RecipeError, Unanswerable, OSError) as error:
        print(f"memory: {plain(str(error))}", file=sys.stderr)
        raise typer.Exit(1) from error
