"""What a tracker is told beside curves: the run's name, its settings, and what came of it.

All of it comes from files of the run folder, and secrets are taken out before it leaves them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from console.errors import RecordBroken
from console.record.files import EVALUATIONS
from console.record.resolved import read_resolved
from console.record.run import read_run
from console.record.tail import Tail
from console.redact import redactor
from console.report.headline import judge_run
from console.report.suites import named_suites, shown_suites


def settings(run: Path) -> dict[str, Any]:
    """The resolved recipe: its shared tables and each process's own; empty where none stands."""
    clean: dict[str, Any] = redactor().data(read_resolved(run).values)
    return clean


def flat(table: Mapping[str, Any], head: str = "") -> dict[str, str]:
    """Dotted names to values as text; a list is one value."""
    found: dict[str, str] = {}
    for name, value in table.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{head}{name}.")
        else:
            found[f"{head}{name}"] = value if isinstance(value, str) else json.dumps(value)
    return found


def run_name(run: Path) -> str:
    """run.name of the recipe, or the folder's name."""
    name = settings(run).get("run", {}).get("name")
    return name if isinstance(name, str) and name else run.resolve().name


def results(run: Path) -> dict[str, Any]:
    """The verdict, why, and the two measurements behind it; empty where nothing was trained."""
    try:
        files = read_run(run)
    except RecordBroken:
        return {}
    named = shown_suites(named_suites([files]), files.resolved.words)
    judged = judge_run(files, named[0] if named else None)
    found: dict[str, Any] = {"verdict": str(judged.verdict), "why": judged.why, "by": judged.by}
    for name, score in (("before", judged.before), ("after", judged.after)):
        if score is not None:
            found |= {name: score.mean, f"{name}_stderr": score.stderr}
    return found


def is_over(run: Path) -> bool:
    """Whether all steps are trained and every suite is evaluated under the last of them.

    False where the settings are not there yet.
    """
    resolved = read_resolved(run)
    steps = resolved.whole("run.steps")
    if steps is None or resolved.get("learner") is None or resolved.get("engine") is None:
        return False
    if not (run / "final").is_dir():
        return False
    rows = Tail(run / EVALUATIONS).read()
    return set(resolved.suites) <= {row.get("suite") for row in rows if row.get("step") == steps}
