"""Commands that speak to a running engine: `engine submit` and `engine watch`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from time import localtime, strftime

import typer

from engine.client import RolloutClient, Submitted, WatchedEvent
from engine.core.tasks.files import open_rows
from engine.core.tasks.rows import check_task, read_media_sources, read_task
from engine.errors import StartupError
from engine.offline.exits import print_to_stderr
from toolwright.page.text import plain
from toolwright.reading.task_rows.refusal import RowRefused
from toolwright.types import Task


async def submit_file(file: Path, address: str, task: str) -> Submitted:
    """Submits the rows of a task file, in order. task: their table in [tasks], "" for a single
    task. Raises StartupError for a file with an unusable row, RequestFailed like the client."""
    if file.suffix not in (".jsonl", ".parquet"):
        raise StartupError(f"{file}: a file of tasks ends in .jsonl or .parquet")
    async with RolloutClient(address, say=print_to_stderr) as engine:
        return await engine.submit(tasks_of(file, task))


def tasks_of(file: Path, name: str) -> Iterator[Task]:
    """The tasks of a file, as a recipe's source reads them. A row without an id is FILE-NUMBER, and
    so it is known when the same file is submitted again."""
    rows = open_rows(file, max_bad_rows=0)
    for number in range(len(rows)):
        try:
            row = rows.row(number)
            task = read_task(row, name=f"{file.stem}-{number}", data_source=file.stem)
            check_task(task)
            media = read_media_sources(row, file.parent)
        except RowRefused as refused:
            raise StartupError(f"{rows.where(number)}: {refused}") from refused
        if media:
            raise StartupError(f"{rows.where(number)}: a submitted task cannot have images")
        yield replace(task, name=name)


async def watch(address: str, after: int, *, as_json: bool) -> None:
    """Prints each event of an engine, until it is cancelled."""
    async with RolloutClient(address, say=print_to_stderr) as engine:
        async for event in engine.watch(after):
            typer.echo(_json_line(event) if as_json else _line(event))


def _json_line(event: WatchedEvent) -> str:
    return json.dumps({"number": event.number, "kind": event.kind, **event.data})


def _line(event: WatchedEvent) -> str:
    data = dict(event.data)
    time_s = data.pop("time_s", None)
    at = strftime("%H:%M:%S", localtime(time_s)) if isinstance(time_s, int | float) else "--:--:--"
    shown = "  ".join(f"{name}={value}" for name, value in sorted(data.items()))
    return plain(f"{at}  {event.kind:<12}  {shown}".rstrip(), keep="")
