"""One run as a whole: what came of it, what raises doubts, where its time went, how it was made.

The figures are those of its report, made when they are asked for, so that a page of a run that goes
on tells what the report would. Secrets are taken out there (`console.redact`).
"""

from __future__ import annotations

import shlex
from typing import Any

from console.record.changes import sentences
from console.record.restarts import tool_restarts
from console.record.run import RunFiles
from console.redact import Redactor, redactor
from console.report.figures import words_and_numbers
from console.report.writing import REPORT
from console.watch import doubts
from toolwright.text.figures import restarted

OF_THE_REPORT = (
    *("headline", "verdict", "why", "about", "suites", "tiles", "breakdowns", "stages"),
    *("processes", "versions", "settings", "commands", "remarks"),
)
LONGEST_VALUE = 2000
"""Letters of a recipe's value."""


def about(run: RunFiles) -> dict[str, Any]:
    """Figures of its report, and `steps`, `planned`, `began`, `last`, `control`, `reward` (of the
    newest step), `course` and `doubts`."""
    clean = redactor(names=False)
    told = words_and_numbers([run], output=run.folder / REPORT)
    newest = run.record.steps[-1] if run.record.steps else None
    shown = {key: told[key] for key in OF_THE_REPORT}
    settings = {key: value[:LONGEST_VALUE] for key, value in told["settings"]["values"].items()}
    return shown | {
        "settings": told["settings"] | {"values": settings},
        "steps": run.steps,
        "planned": run.planned,
        "began": run.began,
        "last": run.last,
        "control": run.resolved.control,
        "reward": None if newest is None else newest.reward,
        "course": _course(run, clean),
        "doubts": [clean.text(one) for one in _doubts(run)],
    }


def _doubts(run: RunFiles) -> list[str]:
    of_steps = doubts.of_steps(run.record.steps, run.resolved.text("task.reward"))
    ended = restarted(tool_restarts(run.folder))
    return [*of_steps, *([ended] if ended else []), *sentences(run.course)]


def _course(run: RunFiles, clean: Redactor) -> dict[str, Any]:
    """What `toolwright run` did, in order; empty lists of a run that was started by hand."""
    ended = run.course.ended
    return {
        "starts": [
            {
                "at": start.at,
                "host": clean.text(start.host),
                "command": shlex.join(clean.words(start.argv)),
            }
            for start in run.course.starts
        ],
        "stages": [
            {"at": stage.at, "text": clean.text(stage.text), "seconds": round(stage.seconds, 1)}
            for stage in run.course.stages
        ],
        "processes": [
            {
                "name": process.name,
                "state": process.state,
                "status": process.status,
                "address": clean.text(process.address),
                "log": clean.text(process.log),
            }
            for process in run.course.processes
        ],
        "ended": None
        if ended is None
        else {"at": ended.at, "status": ended.status, "sentence": clean.text(ended.sentence)},
    }
