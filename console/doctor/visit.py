"""A whole visit: what is looked at is found, all checks are made and told, a bundle is written."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from console.doctor import (
    clock,
    disk,
    machine,
    packages,
    recipe,
    run_folder,
    samplers,
    sandbox,
    services,
)
from console.doctor.bundle import write_bundle
from console.doctor.examining import examine
from console.doctor.types import Check, Finding, Level, Patient, problem, unknown
from console.errors import RecordBroken
from console.record.course import read_course
from toolwright.page.text import plain
from toolwright.recipe import Recipe, RecipeError, check_all, load_recipe, read_resolved

LONGEST_S = 58.0
CHECKS: tuple[Check, ...] = (
    *disk.CHECKS,
    *packages.CHECKS,
    *samplers.CHECKS,
    *sandbox.CHECKS,
    *machine.CHECKS,
    *clock.CHECKS,
)
"""The disk first: it is measured before others use it."""
OF_RECIPE: tuple[Check, ...] = (
    *recipe.OF_RECIPE,
    *samplers.OF_RECIPE,
    *services.OF_RECIPE,
    *run_folder.OF_RECIPE,
)
MARKS = {
    Level.OK: "[green]ok[/]     ",
    Level.WARNING: "[yellow]warning[/]",
    Level.UNKNOWN: "[red]unknown[/]",
    Level.PROBLEM: "[red]problem[/]",
}


def visit(
    given: Path | None,
    settings: list[str],
    *,
    as_json: bool,
    bundle: Path | None,
    with_texts: bool,
) -> bool:
    """Whether there are problems, the bundle's own among them, or checks without a result.

    With `as_json` standard output holds the findings, standard error the lines for people.
    """
    patient, found = _patient(given, settings)
    console = Console(highlight=False, soft_wrap=True, stderr=as_json)
    for finding in found:
        console.print(_line(finding))
    checks = (*CHECKS, *(OF_RECIPE if patient.recipe is not None else ()))
    found += asyncio.run(_examine(patient, checks, console))
    found.sort(key=lambda one: list(Level).index(one.level))
    if as_json:
        print(json.dumps([asdict(one) for one in found], indent=1))
    _sum_up(console, found)
    failed = any(one.level in (Level.PROBLEM, Level.UNKNOWN) for one in found)
    if bundle is not None:
        failed |= not _bundle(console, bundle, patient, found, with_texts=with_texts)
    return failed


def _patient(given: Path | None, settings: list[str]) -> tuple[Patient, list[Finding]]:
    """What is looked at, and what keeps the recipe from being looked at."""
    environment = dict(os.environ)
    bare = Patient(folder=Path.cwd(), environment=environment)
    if given is None:
        return bare, []
    from console.asked.setup import DEFAULT

    try:
        file = given / DEFAULT if given.is_dir() else given
        if given.is_dir() and not file.is_file():
            read, overrides = _of_run(given)
        else:
            read, overrides = load_recipe(file, settings), settings
            check_all(read)
        patient = Patient(
            folder=read.run_folder, environment=environment, recipe=read, overrides=overrides
        )
        _ = patient.console
    except (RecipeError, RecordBroken, OSError) as error:
        return bare, [problem("recipe", str(error), "docs/train/recipe.md has every key")]
    return patient, []


def _of_run(run: Path) -> tuple[Recipe, Sequence[str]]:
    """The recipe of a run folder with what its last start was told. RecipeError, RecordBroken."""
    starts = read_course(run).starts
    if starts:
        told = [*starts[-1].overrides, f"run.folder={run.resolve()}"]
        return load_recipe(Path(starts[-1].recipe), told), told
    return read_resolved(run / "engine.resolved.json"), []


async def _examine(patient: Patient, checks: Sequence[Check], console: Console) -> list[Finding]:
    """All findings, told as they come."""
    found: list[Finding] = []
    under_way: list[str] = []
    subjects = {check.subject for check in checks}

    def begun(subject: str) -> None:
        under_way.append(subject)

    with console.status("looking ...") as status:
        left = len(checks)
        try:
            async with asyncio.timeout(LONGEST_S):
                async for check, findings in examine(patient, checks, begun):
                    left -= 1
                    under_way.remove(check.subject)
                    subjects.discard(check.subject)
                    found += findings
                    for finding in findings:
                        console.print(_line(finding))
                    status.update(f"{', '.join(under_way) or 'looking'} ... {left} left")
        except TimeoutError:
            for subject in sorted(subjects):
                found.append(unknown(subject, f"not looked at within {LONGEST_S:.0f} s"))
                console.print(_line(found[-1]))
    return found


def _line(finding: Finding) -> str:
    mend = f"\n         [bold]mend:[/] {_told(finding.mend)}" if finding.mend else ""
    head = f"{MARKS[finding.level]}  [bold]{_told(finding.subject)}[/]"
    return f"{head}: {_told(finding.sentence)}{mend}"


def _told(text: str) -> str:
    """Neither markup nor what steers a terminal: names of a recipe are in it."""
    return escape(plain(text))


def _sum_up(console: Console, found: Sequence[Finding]) -> None:
    counts = {level: sum(one.level is level for one in found) for level in Level}
    console.print(f"\n{summary_line(counts)}")


def summary_line(counts: Mapping[Level, int]) -> str:
    """Number of findings of each level, as the last line."""
    problems, open_, doubts = (
        counts[level] for level in (Level.PROBLEM, Level.UNKNOWN, Level.WARNING)
    )
    words = []
    if problems:
        words.append(f"{problems} problem{'s' * (problems > 1)}")
    if open_:
        checks = f"{open_} check{'s' * (open_ > 1)} without a result"
        words.append(checks if problems else f"{checks}: whether a run starts is not known")
    if not words:
        words.append("nothing keeps a run from starting")
    if doubts:
        words.append(f"{doubts} warning{'s' * (doubts > 1)}")
    return ", ".join(words)


def _bundle(
    console: Console, file: Path, patient: Patient, found: Sequence[Finding], *, with_texts: bool
) -> bool:
    """Whether it could be written; says what is inside and where it lies."""
    try:
        inside = write_bundle(file, patient, found, with_texts=with_texts)
    except OSError as error:
        console.print(f"doctor: {file} cannot be written: {error.strerror or error}")
        return False
    console.print(
        f"\n{file.resolve()} ({file.stat().st_size / 1024:.0f} KiB) holds, secrets redacted:"
    )
    for name, what in inside:
        console.print(f"  {_told(name)}: {_told(what)}")
    console.print("It was sent nowhere. Look through it before you attach it to a report.")
    return True
