"""How a command ends where it cannot do what it was asked: one sentence, and exit code 1."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

import typer

from tasks.errors import TaskFault
from toolwright.page.text import plain


@contextlib.contextmanager
def one_sentence() -> Iterator[None]:
    try:
        yield
    except (TaskFault, OSError) as error:
        print(f"tasks: {plain(str(error))}", file=sys.stderr)
        raise typer.Exit(1) from error
