"""The commands of a report, each as it stands: absolute, quoted for a shell, nothing cut but
secrets."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from console.record.run import RunFiles
from console.redact import Redactor

PROGRAMS = ("toolwright", "engine", "learner", "toolsvc", "bench")


def commands(runs: Sequence[RunFiles], output: Path, clean: Redactor) -> list[dict[str, str]]:
    """What can be typed next: {"what", "command"}."""
    folders = [str(run.folder) for run in runs]
    page = str(output.resolve())
    curves = "curves by step and by hours, and what the recipes differ in"
    found = [
        ("this report again", ["toolwright", "report", *folders, "--output", page]),
        (curves, ["toolwright", "compare", *folders]),
        ("what the engine did", ["engine", "inspect", folders[0]]),
    ]
    lines = [{"what": what, "command": shlex.join(_found(words))} for what, words in found]
    if starts := runs[0].course.starts:
        # The run was asked for where its user stood.
        again = shlex.join(_found(clean.words(starts[-1].argv)))
        there = f"cd {shlex.quote(starts[-1].cwd)} && " if starts[-1].cwd else ""
        what = "the run, where it was stopped: the same command goes on"
        lines.insert(0, {"what": what, "command": f"{there}{again}"})
    return lines


def processes(runs: Sequence[RunFiles], clean: Redactor) -> list[dict[str, str]]:
    """As they were started last, {"name", "what", "command"}; those of several runs that are the
    same stand once. A server that answered already has no command."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for run in runs:
        # Their relative paths are below the recipe's folder.
        folder = str(Path(run.resolved.recipe).parent) if run.resolved.recipe else ""
        for process in run.course.processes:
            found[process.name, process.command] = {
                "name": process.name,
                "what": process.what,
                "command": _typed(process.command, folder, clean),
            }
    return list(found.values())


def _typed(command: str, folder: str, clean: Redactor) -> str:
    try:
        words = clean.words(shlex.split(command))
    except ValueError:
        return clean.text(command)
    if not words:
        return ""
    there = f"cd {shlex.quote(folder)} && " if folder else ""
    return f"{there}{shlex.join(_found(words))}"


def _found(words: list[str]) -> list[str]:
    """With the program's own path, which is beside this Python where it is the project's."""
    if words[:1] == ["python"]:
        return [sys.executable, *words[1:]]
    if words and words[0] in PROGRAMS:
        return [str(Path(sys.executable).with_name(words[0])), *words[1:]]
    return words
