"""`engine analyze`: which tools recordings called, as a table, as JSON or as a page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from engine.errors import StartupError
from engine.offline.analyze.findings import findings
from engine.offline.analyze.rates import compared
from engine.offline.analyze.sources import add_recording
from engine.offline.analyze.table import table
from engine.offline.analyze.tally import ToolTally
from engine.offline.analyze.words import read_vocabulary


def analyze(sources: Sequence[Path], domains: Path | None) -> dict[str, Any]:
    """The findings of all sources together. Raises StartupError."""
    tally = ToolTally(read_vocabulary(domains))
    notes = [note for source in sources for note in add_recording(source, tally)]
    return findings(tally, notes)


def print_analysis(
    sources: Sequence[Path],
    domains: Path | None,
    page: Path | None,
    compare: Path | None,
    *,
    as_json: bool,
) -> None:
    """Prints the table or JSON, and writes the page if one is wanted. compare: a recording whose
    rates stand beside those of the sources."""
    if page is not None:  # before the work, which may take long
        _make_folder(page)
    found = analyze(sources, domains)
    if compare is not None:
        other = analyze([compare], domains)
        rates = compared(found["rates"], other["rates"])
        found["compared"] = {"recording": str(compare), "rates": rates}
    if page is not None:
        from engine.offline.analyze.page import page as made

        more = f" and {len(sources) - 1} more" if len(sources) > 1 else ""
        page.write_text(made(found, f"{sources[0]}{more}"), "utf-8")
    if as_json:
        typer.echo(json.dumps(found, indent=1))
        return
    for line in table(found):
        typer.echo(line)
    if page is not None:
        typer.echo(f"\n{page}")


def _make_folder(page: Path) -> None:
    try:
        page.parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise StartupError(
            f"--page: {page.parent} is a file and not a folder: name another place"
        ) from error
    if page.is_dir():
        raise StartupError(f"--page: {page} is a folder: name a file")
