"""`tasks verifications`: rows of a published set as folders that the tool `swe` verifies by."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tasks.commands.endings import one_sentence
from tasks.commands.reading import File
from tasks.errors import NotMade, WrongLayout
from tasks.sets.rows import Found, files_of, rows_of
from tasks.verifications.columns import Options, Row, VerificationDraft
from tasks.verifications.harbor import harbor
from tasks.verifications.nemotron import nemotron
from tasks.verifications.pro import pro
from tasks.verifications.r2e import r2e
from tasks.verifications.swe_bench import swe_bench
from tasks.verifications.writing import write_folder
from toolwright.reading.task_rows.refusal import RowRefused

_EVERY = 250
"""Rows between two lines of progress."""


class SetForm(StrEnum):
    """The published form of the rows."""

    R2E = "r2e"
    SWE_BENCH = "swebench"
    PRO = "swebench_pro"
    NEMOTRON = "nemotron"
    HARBOR = "harbor"


_MAKERS: Mapping[SetForm, Callable[[Row, Options], VerificationDraft]] = {
    SetForm.R2E: r2e,
    SetForm.SWE_BENCH: swe_bench,
    SetForm.PRO: pro,
    SetForm.NEMOTRON: nemotron,
    SetForm.HARBOR: harbor,
}


def verifications(
    form: Annotated[
        SetForm,
        typer.Argument(
            metavar="FORM",
            help="r2e (R2E-Gym, its Lite and Subset), swebench (SWE-bench, Verified, SWE-Gym), "
            "swebench_pro, nemotron (rows of NeMo Gym), or harbor (task folders)",
            show_default=False,
        ),
    ],
    rows: File,
    output: Annotated[
        Path, typer.Option(help="the folder for the verifications; it may hold others")
    ],
    only: Annotated[
        list[str] | None, typer.Option(help="only this id; may be repeated", metavar="ID")
    ] = None,
    image: Annotated[
        str,
        typer.Option(
            help="name of a task's image, in place of the set's own, such as "
            "'registry.local/swe:{id_1776}'"
        ),
    ] = "",
    seconds: Annotated[
        float, typer.Option(min=0, help="limit of a task's tests; 0 is the set's own")
    ] = 0.0,
    scripts: Annotated[
        Path | None, typer.Option(help="swebench_pro: a checkout of SWE-bench_Pro-os")
    ] = None,
    folder: Annotated[
        str, typer.Option(help="harbor: the tasks' working folder, as swe.folder; /app if not set")
    ] = "",
) -> None:
    """Write a verification for each row of a published set: hidden tests, command, outcomes, image.

    The tool `swe` is served with the folder: --set swe.verifications=OUTPUT. The tasks come from
    `tasks convert` of the same rows, whose metadata name the verifications. Existing folders are
    kept as they are.
    """
    with one_sentence():
        made, kept, rejected = _written(form, rows, output, frozenset(only or ()), Options(
            image=image, seconds=seconds, scripts=scripts, folder=folder
        ))  # fmt: skip
        were = f"; {kept} were there already" if kept else ""
        typer.echo(f"{output}: {made} verifications{were}; rejected: {rejected or 'none'}")


def _written(
    form: SetForm, rows: Path, output: Path, only: frozenset[str], options: Options
) -> tuple[int, int, str]:
    """Numbers of new and of existing folders, and why rows were rejected. Raises NotMade if an id
    of `only` is no row's, WrongLayout if no row is of the form."""
    counts: Counter[str] = Counter()
    first: dict[str, str] = {}
    missing = set(only)
    made = kept = 0
    for number, (where, row) in enumerate(_rows(rows), 1):
        if number % _EVERY == 0:
            print(f"tasks: {number} rows, {made} written", file=sys.stderr)
        try:
            if isinstance(row, RowRefused):
                raise row
            one = _MAKERS[form](row, options)
            if only and one.id not in only:
                continue
            missing.discard(one.id)
            new = write_folder(one, output)
        except RowRefused as refused:
            reason = refused.kind.replace("_", " ")
            counts[reason] += 1
            first.setdefault(reason, f"{where}: {refused}"[:300])
            continue
        made, kept = made + new, kept + (not new)
    why = "; ".join(
        f"{n} with {reason}, the first is {first[reason]}" for reason, n in counts.items()
    )
    if missing:
        raise NotMade(f"--only {sorted(missing)[0]}: no row has that id{why and f'; {why}'}")
    if not (made or kept):
        raise WrongLayout(f"{rows}: no row is one of {form.value}: {why or 'there are no rows'}")
    return made, kept, why


def _rows(path: Path) -> Iterator[Found]:
    for file in files_of(path):
        yield from rows_of(file)
