"""`bench memory`: its options, its table and its file."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from bench.errors import UsageError
from bench.measuring.command import JsonFile, print_table, write_json

P99_MS, PROMISED_AT = 20.0, 10_000
"""Promised p99 of a question, up to so many tools."""


def memory(
    tools: Annotated[int, typer.Option(min=100, help="Tools in the memory.")] = 10_000,
    questions: Annotated[int, typer.Option(min=10, help="Questions of three subtasks.")] = 300,
    merges: Annotated[int, typer.Option(min=30, help="Groups that come in.")] = 300,
    embedder: Annotated[
        str, typer.Option(help="hashing, minilm, or a sentence-transformers folder.")
    ] = "hashing",
    json_file: JsonFile = None,
) -> None:
    """Measure the tool memory: questions, alone and while tools come in, merges, and a start.

    Fills a memory in a SQLite file with tools of random words. Questions are asked within the
    process: gRPC is no part of the figures.
    """
    from bench.memory.measure import TIMED, measure
    from memory.errors import Unusable
    from memory.search.embedding import embedder as named

    try:
        embed = named(embedder)[1]()
    except Unusable as error:
        raise UsageError(str(error)) from error
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder), tools, questions, merges, embed)
    promised = f"p99 <= {P99_MS:g}" if found["nodes"] <= 1.2 * PROMISED_AT else ""
    rows = [
        [
            what,
            promised if name in ("question", "after", "busy") else "",
            *(f"{found[name][key]:.2f}" for key in ("p50", "p99")),
            str(found[name]["count"]),
        ]
        for name, what in TIMED.items()
    ]
    columns = ("what", "promised", "p50 ms", "p99 ms", "of")
    print_table(f"A memory of {found['nodes']} tools", columns, rows, left=2)
    print(
        f"{found['merges_per_s']:.0f} merges a second; start {found['start_s']:.2f} s; an older "
        f"version {found['old_version_s']:.2f} s; {found['megabytes']:.0f} MB on disk"
    )
    write_json(json_file, found)
