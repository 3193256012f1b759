"""`tasks convert`: a set as a JSONL file that a recipe's [task] `source` names."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from random import Random
from typing import Annotated

import typer

from tasks.commands.endings import one_sentence
from tasks.commands.reading import File, Gold, Heldout, Name, QuestionMarks
from tasks.commands.writing import write_new
from tasks.errors import NotMade
from tasks.record import Record, line_of
from tasks.sets import Reading


class Copied(StrEnum):
    """Fields that may be copied into the metadata: none that has the answer."""

    QUESTION = "question"
    ID = "id"
    DATA_SOURCE = "data_source"


def convert(
    name: Name,
    file: File,
    output: Annotated[Path, typer.Argument(help="the JSONL file to write")],
    gold: Gold = None,
    heldout: Heldout = False,
    question_marks: QuestionMarks = False,
    images: Annotated[
        list[Path] | None,
        typer.Option(
            help="folder in which the set's image paths lie, the file's own if not set; may be "
            "repeated: a path is looked for in each, in this order",
            metavar="FOLDER",
        ),
    ] = None,
    only_source: Annotated[
        list[str] | None,
        typer.Option(help="only rows of this data source; may be repeated", metavar="NAME"),
    ] = None,
    sample: Annotated[
        int | None, typer.Option(min=1, help="this many of the rows, drawn at random by --seed")
    ] = None,
    seed: Annotated[int, typer.Option(help="seed of --sample")] = 0,
    metadata: Annotated[
        list[Copied] | None,
        typer.Option(help="write this field into the metadata too, for tools; may be repeated"),
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
        folders = images or [file if file.is_dir() else file.parent]
        chosen = _chosen(reading, only_source or (), sample, seed)
        copied = (_with_metadata(record, metadata or ()) for record in chosen)
        placed = (_with_images(record, folders, output) for record in copied)
        count = write_new(output, _lines(placed))
        typer.echo(
            f"{output}: {count} questions of {name}; rejected: {reading.why_rejected() or 'none'}"
        )


def _chosen(
    reading: Reading, sources: Sequence[str], sample: int | None, seed: int
) -> Iterator[Record]:
    """The records of the sources (of all without names), or a random sample of them, in order.

    Raises NotMade if there are fewer than `sample`, or none.
    """
    seen: set[str] = set()
    count = 0
    if sources or sample:  # a first pass: nothing is written if the rows are not there
        for record in reading:
            seen.add(record.data_source)
            count += not sources or record.data_source in sources
        if missing := [name for name in sources if name not in seen]:
            names = ", ".join(sorted(seen))
            raise NotMade(f"no row has the data source {missing[0]!r}; the sources are {names}")
        if sample is not None and sample > count:
            raise NotMade(f"--sample {sample}: there are {count} rows: lower it")
    picked = None if sample is None else frozenset(Random(seed).sample(range(count), sample))
    records = (one for one in reading if not sources or one.data_source in sources)
    return (one for number, one in enumerate(records) if picked is None or number in picked)


def _with_metadata(record: Record, fields: Sequence[Copied]) -> Record:
    if not fields:
        return record
    copied = {field.value: getattr(record, field.value) for field in fields}
    return replace(record, extra={**record.extra, **copied})


def _lines(records: Iterator[Record]) -> Iterator[str]:
    for record in records:
        yield line_of(record.row())


def _with_images(record: Record, folders: Sequence[Path], output: Path) -> Record:
    """Its images as paths from where the file will be. A path that no folder has is taken to be in
    the first: the engine names the missing file."""
    if not record.images:
        return record
    home = output.absolute().parent
    paths: list[str | bytes] = []
    for image in record.images:
        if isinstance(image, bytes):
            place = home / f"{output.stem}-images" / hashlib.sha256(image).hexdigest()
            _keep(place, image)
        else:
            places = [folder.absolute() / image for folder in folders]
            place = next((one for one in places if one.exists()), places[0])
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
