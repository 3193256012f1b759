"""A whole visit: every check is made, each finding is printed as it comes, a bundle is written.

Invariants
- A check that hangs or raises is a finding, and stops no other check.
- All is over within LONGEST_S. A thread that hangs in a disk or a driver does not delay the end:
  threads are daemons.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from console.asked.setup import DEFAULT, Options, Setup, set_up
from console.config import ConsoleTable
from console.doctor import installation, machine, recipe
from console.doctor.bundle import write_bundle
from console.doctor.types import Check, Finding, Level, Patient, problem, unknown
from console.errors import ConsoleError
from console.record.course import read_course
from toolwright.page.text import plain
from toolwright.process.command_line import missing
from toolwright.process.daemon import in_daemon
from toolwright.recipe import RecipeError, read_resolved

LONGEST_S = 58.0
AT_ONCE = 3
"""Checks that run side by side. More would measure each other on few cores."""
CHECKS: Mapping[str, Check] = {
    "disk": machine.disk,  # first, before others use it
    "Python": installation.python,
    "packages": installation.packages,
    "torch": installation.torch,
    "sampler's environment": installation.sampler_environment,
    "sandbox": installation.sandbox,
    "memory": machine.memory,
    "cores": machine.cores,
    "limits": machine.limits,
    "text": machine.text,
    "network": machine.network,
    "clock": machine.clock,
}
OF_RECIPE: Mapping[str, Check] = {
    "recipe": recipe.recipe,
    "servers": recipe.servers,
    "tools": recipe.tools,
    "run folder": recipe.run_folder,
}
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
    found += asyncio.run(_examined(patient, console))
    found.sort(key=lambda one: list(Level).index(one.level))
    if as_json:
        print(json.dumps([asdict(one) for one in found], indent=1))
    console.print(f"\n{summary_line(Counter(one.level for one in found))}")
    failed = any(one.level in (Level.PROBLEM, Level.UNKNOWN) for one in found)
    if bundle is not None:
        failed |= not _bundle(console, bundle, patient, found, with_texts=with_texts)
    return failed


def _patient(given: Path | None, settings: list[str]) -> tuple[Patient, list[Finding]]:
    """What is examined, and why the recipe cannot be."""
    environment = dict(os.environ)
    try:
        setup = _setup(given, settings) if given is not None else None
        return Patient(environment=environment, setup=setup), []
    except (RecipeError, ConsoleError, OSError) as error:
        said = problem("recipe", str(error), "docs/train/recipe.md has every key")
        return Patient(environment=environment), [said]


def _setup(given: Path, settings: Sequence[str]) -> Setup:
    """The recipe, or that of a run folder's last start, with its overrides. Raises as `set_up`."""
    if not given.is_dir() or (given / DEFAULT).is_file():
        return set_up(Options(recipe=given, overrides=tuple(settings)))
    if starts := read_course(given).starts:
        told = (*starts[-1].overrides, f"run.folder={given.resolve()}")
        return set_up(Options(recipe=Path(starts[-1].recipe), overrides=told))
    read = read_resolved(given / "engine.resolved.json")
    return Setup(recipe=read, table=read.table("console", ConsoleTable), overrides=())


async def _examined(patient: Patient, console: Console) -> list[Finding]:
    """All findings, printed as they come."""
    checks = {**CHECKS, **(OF_RECIPE if patient.setup is not None else {})}
    found: list[Finding] = []
    with console.status("looking ..."):
        async for findings in examine(checks, patient, LONGEST_S):
            found += findings
            for finding in findings:
                console.print(_line(finding))
    return found


async def examine(
    checks: Mapping[str, Check], patient: Patient, seconds: float
) -> AsyncIterator[Sequence[Finding]]:
    """Each check's findings, in the order of their end. checks: by subject. seconds: of all."""
    ends = asyncio.get_running_loop().time() + seconds
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(subject: str, check: Check) -> Sequence[Finding]:
        try:
            async with asyncio.timeout_at(ends), turns:
                return await in_daemon(lambda: tuple(check(patient)), f"doctor-{subject}")
        except TimeoutError:
            return [unknown(subject, f"no result within {seconds:.0f} s, so it is not known")]
        except ModuleNotFoundError as error:
            sentence, _, fix = missing(error.name or "", "console").partition(": ")
            return [unknown(subject, f"not examined: {sentence}", fix)]
        except Exception as error:  # noqa: BLE001 (a check that breaks is a finding of its own)
            words = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            return [unknown(subject, f"could not be examined ({words})")]

    tasks = [asyncio.create_task(one(*check)) for check in checks.items()]  # in their order
    for done in asyncio.as_completed(tasks):
        yield await done


def _line(finding: Finding) -> str:
    fix = f"\n         [bold]fix:[/] {_shown(finding.fix)}" if finding.fix else ""
    head = f"{MARKS[finding.level]}  [bold]{_shown(finding.subject)}[/]"
    return f"{head}: {_shown(finding.sentence)}{fix}"


def _shown(text: str) -> str:
    """Neither markup nor what steers a terminal: names of a recipe are in it."""
    return escape(plain(text))


def summary_line(counts: Mapping[Level, int]) -> str:
    """Number of findings of each level, as the last line."""

    def many(level: Level, word: str) -> str:
        return f"{counts[level]} {word}{'s' * (counts[level] > 1)}" if counts[level] else ""

    problems, open_ = many(Level.PROBLEM, "problem"), many(Level.UNKNOWN, "check")
    if open_:
        open_ += " without a result" + ("" if problems else ": whether a run starts is not known")
    words = [problems, open_] if problems or open_ else ["nothing keeps a run from starting"]
    return ", ".join(filter(None, [*words, many(Level.WARNING, "warning")]))


def _bundle(
    console: Console, file: Path, patient: Patient, found: Sequence[Finding], *, with_texts: bool
) -> bool:
    """Whether it could be written; says what is inside and where it lies."""
    try:
        inside = write_bundle(file, patient, found, with_texts=with_texts)
    except OSError as error:
        console.print(f"doctor: {file} cannot be written: {error.strerror or error}")
        return False
    size = file.stat().st_size / 1024
    console.print(f"\n{file.resolve()} ({size:.0f} KiB) holds, secrets redacted:")
    for name, what in inside:
        console.print(f"  {_shown(name)}: {_shown(what)}")
    console.print("It was sent nowhere. Look through it before you attach it to a report.")
    return True
