"""`tasks convert`: a set as a JSONL file that a recipe's [task] `source` names."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from tasks.commands.endings import one_sentence
from tasks.commands.reading import File, Gold, Heldout, Name, QuestionMarks
from tasks.commands.writing import write_new
from tasks.errors import NotMade
from tasks.record import Record, line_of
from tasks.sets import Reading


def convert(
    name: Name,
    file: File,
    output: Annotated[Path, typer.Argument(help="the JSONL file to write")],
    gold: Gold = None,
    heldout: Heldout = False,
    question_marks: QuestionMarks = False,
    images: Annotated[
        Path | None,
        typer.Option(help="folder in which the set's image paths lie; the file's own if not said"),
    ] = None,
) -> None:
    """Write a set as a file that a recipe can name: [task] source = "OUTPUT".

    Images stay where they are, and are referred to from there; those that stand in the file itself
    are written into a folder beside OUTPUT.
    """
    with one_sentence():
        if output.suffix != ".jsonl":
            raise NotMade(f"{output}: its name has to end in .jsonl, by which a recipe knows it")
        reading = Reading(name, file, gold=gold, heldout=heldout, question_marks=question_marks)
        folder = images or (file if file.is_dir() else file.parent)
        placed = (_with_images(record, folder, output) for record in reading)
        count = write_new(output, _lines(placed))
        typer.echo(
            f"{output}: {count} questions of {name}; rejected: {reading.why_rejected() or 'none'}"
        )


def _lines(records: Iterator[Record]) -> Iterator[str]:
    for record in records:
        yield line_of(record.row())


def _with_images(record: Record, folder: Path, output: Path) -> Record:
    """Its images as paths from where the file will be."""
    if not record.images:
        return record
    home = output.absolute().parent
    paths: list[str | bytes] = []
    for image in record.images:
        if isinstance(image, bytes):
            place = home / f"{output.stem}-images" / hashlib.sha256(image).hexdigest()
            _keep(place, image)
        else:
            place = folder.absolute() / image
        paths.append(os.path.relpath(place, home))
    return replace(record, images=tuple(paths))


def _keep(place: Path, content: bytes) -> None:
    if place.exists():  # by its content's hash: it is this one
        return
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        draft = place.with_suffix(".part")
        draft.write_bytes(content)
        draft.rename(place)
    except OSError as error:
        raise NotMade(f"{place} cannot be written: {error.strerror or error}") from error
