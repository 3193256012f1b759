"""One run as a whole: what came of it, what raises doubts, where its time went, how it was made.

The figures are those of its report, made when they are asked for, so that a page of a run that goes
on tells what the report would. Secrets are taken out there (`console.redact`).
"""

from __future__ import annotations

import shlex
from typing import Any

from console.course.state import State
from console.record.run import RunFiles
from console.redact import Redactor, redactor
from console.report.figures import words_and_numbers
from console.report.writing import REPORT
from console.web.measures.summary import doubts_of, standing

OF_THE_REPORT = (
    *("headline", "verdict", "why", "about", "suites", "rows", "runs", "tiles", "breakdowns"),
    *("processes", "versions", "settings", "commands", "remarks"),
)
LONGEST_VALUE = 2000
"""Letters of a recipe's value."""


def about(run: RunFiles, *, fresh: bool) -> dict[str, Any]:
    """Figures of its report, and `word` and `sentence` of its state (see `standing`), `steps`,
    `planned`, `began`, `last`, `course` and `doubts`."""
    clean, state = redactor(names=False), standing(run, fresh=fresh)
    told = words_and_numbers([run], output=run.folder / REPORT)
    shown = {key: told[key] for key in OF_THE_REPORT}
    settings = {key: value[:LONGEST_VALUE] for key, value in told["settings"]["values"].items()}
    return shown | {
        "settings": told["settings"] | {"values": settings},
        "word": state.word,
        "sentence": clean.text(state.sentence),
        "steps": run.steps,
        "planned": run.planned,
        "began": run.began,
        "last": run.last,
        "course": _course(run, state, clean),
        "doubts": [clean.text(one) for one in doubts_of(run)],
    }


def _course(run: RunFiles, state: State, clean: Redactor) -> dict[str, Any]:
    """What `toolwright run` did, in order; empty lists of a run that was started by hand."""
    ended = run.course.ended
    lives = {one.name: one.alive for one in state.processes}
    words: dict[bool | None, str] = {True: "runs", False: "ended"}
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
                "state": words.get(lives[process.name], process.state),
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
