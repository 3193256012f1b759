"""`tasks show`: the first records of a set's file, as a recipe gets them."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from tasks.commands.endings import one_sentence
from tasks.commands.reading import File, Gold, Heldout, Name, QuestionMarks
from tasks.record import Record
from tasks.sets import Reading
from toolwright.page.text import plain

SHOWN = 600
"""Characters of one text."""


def show(
    name: Name,
    file: File,
    n: Annotated[int, typer.Option("--n", min=1, help="records")] = 3,
    gold: Gold = None,
    heldout: Heldout = False,
    question_marks: QuestionMarks = False,
) -> None:
    """Show the first records of a set, and count what is rejected in the whole file and why.

    A long text is cut short here, and nowhere else.
    """
    with one_sentence():
        reading = Reading(name, file, gold=gold, heldout=heldout, question_marks=question_marks)
        kept = 0
        for record in reading:
            if kept < n:
                typer.echo(plain(json.dumps(_shown(record), ensure_ascii=False, indent=2)))
            kept += 1
        typer.echo(f"{kept} records; rejected: {reading.why_rejected() or 'none'}")


def _shown(record: Record) -> dict[str, Any]:
    found = {
        "id": record.id,
        "data_source": record.data_source,
        "task": record.task,
        "split": record.split,
        "question": record.question,
        "messages": list(record.messages),
        "images": [
            image if isinstance(image, str) else f"{len(image)} bytes" for image in record.images
        ],
        "answer": list(record.answer),
        "extra": record.extra,
    }
    return {key: _short(value) for key, value in found.items() if value}


def _short(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= SHOWN else f"{value[:SHOWN]}... ({len(value)} characters)"
    if isinstance(value, list):
        return [_short(one) for one in value[:20]]
    return {key: _short(one) for key, one in value.items()} if isinstance(value, dict) else value
