"""Options, errors and tables of the instruments' command lines."""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from bench.errors import BenchError, UsageError
from console.errors import ConsoleError

JsonFile = Annotated[Path | None, typer.Option("--json", help="Also write the report there.")]


@contextmanager
def one_sentence_errors() -> Iterator[None]:
    """Prints an error of the body to stderr as one sentence and exits with its status."""
    try:
        yield
    except (BenchError, ConsoleError, OSError) as error:
        typer.echo(f"bench: {error}", err=True)
        raise typer.Exit(getattr(error, "status", 1)) from error


def whole_numbers(option: str, text: str) -> list[int]:
    """The numbers of an option such as `64,256`. Raises UsageError unless all are above 0."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdigit() and int(word) > 0 for word in words):
        raise UsageError(f"{option} {text}: give whole numbers above 0, such as 64,256")
    return [int(word) for word in words]


def allow_files(wanted: int, option: str) -> None:
    """Allows so many open files, here and in processes that are started. Raises UsageError, which
    names the option, above the hard limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        if hard != resource.RLIM_INFINITY and hard < wanted:
            raise UsageError(
                f"{option} takes {wanted} open files, the limit is {hard}: raise it with "
                "`ulimit -n`"
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def progress(text: str) -> None:
    """Prints a line about the current work to stderr."""
    typer.echo(f"  {text}", err=True)


def write_json(file: Path | None, found: dict[str, Any]) -> None:
    """Writes the report of an instrument if the user named a file."""
    if file is not None:
        file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def print_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1
) -> None:
    """Prints a table. left: number of columns at the left that hold text; the others hold
    numbers."""
    table = Table(title=title, box=SIMPLE)
    for place, name in enumerate(columns):
        table.add_column(
            name, justify="left" if place < left else "right", no_wrap=True, overflow="fold"
        )
    for row in rows:
        table.add_row(*row)
    # A pipe has no width: every table fits into this one.
    Console(width=None if sys.stdout.isatty() else 200).print(table)
