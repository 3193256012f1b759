"""Conversations of a JSONL file. Memory holds one row, and the ids of all rows before it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from engine.errors import StartupError
from engine.offline.conversations.layouts import conversation
from engine.offline.conversations.types import BrokenRow, RecordedConversation
from engine.types import ToolSpec
from toolwright.json_data import read_exact
from toolwright.reading.task_rows.refusal import RowRefused
from toolwright.reading.task_rows.row_files import MOST_ROW_BYTES, lines_of


def conversations(
    file: Path, tools: Sequence[ToolSpec] = ()
) -> Iterator[tuple[int, RecordedConversation | RowRefused]]:
    """(line number from 1, conversation or error) of each line that is not empty.

    A repeated id gets the line's number as suffix, so every id is unique. Raises OSError if the
    file cannot be opened, StartupError if it is not JSONL at all.

    tools: for rows without tools.
    """
    seen: set[str] = set()
    with file.open("rb") as opened:
        for number, (line, _) in enumerate(lines_of(opened), 1):
            if line is None:
                raise StartupError(
                    f"{file}:{number} is longer than {MOST_ROW_BYTES >> 20} MiB: write each "
                    f"conversation in a line of its own, as `jq -c '.[]' {file.name}` does"
                )
            if number == 1:
                _refuse_others(file, line)
            if text := line.strip():
                found = _read(text, number, tools)
                if isinstance(found, RecordedConversation):
                    while found.id in seen:
                        found = replace(found, id=f"{found.id}-{number}")
                    seen.add(found.id)
                yield number, found


def _read(line: bytes, number: int, tools: Sequence[ToolSpec]) -> RecordedConversation | RowRefused:
    try:
        row = read_exact(line.decode("utf-8-sig" if number == 1 else "utf-8"))
    except UnicodeDecodeError as error:
        return BrokenRow(f"not UTF-8 ({error}): write the file in UTF-8")
    except json.JSONDecodeError as error:
        return BrokenRow(f"not JSON ({error}): write one whole object in a line")
    except ValueError as error:
        return BrokenRow(f"JSON that cannot be used ({error}): correct the value")
    try:
        return conversation(row, number, tools)
    except RowRefused as refused:
        return refused


def _refuse_others(file: Path, first: bytes) -> None:
    """Raises StartupError for Parquet and for one JSON list, by their first bytes."""
    if first.startswith(b"PAR1"):
        raise StartupError(
            f"{file} is Parquet: write it as JSON lines, as `pandas.read_parquet(FILE)"
            '.to_json("FILE.jsonl", orient="records", lines=True)` does'
        )
    if first.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"["):
        raise StartupError(
            f"{file} is one JSON list: write each conversation in a line of its own, "
            f"as `jq -c '.[]' {file.name} > {file.stem}.jsonl` does"
        )
