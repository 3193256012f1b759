"""What became of each run of a ladder, from its files and from what was just heard of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from console.ablate.begun import BUDGET, another, noted
from console.ablate.ladder import Rung
from console.asked.setup import set_up
from console.config import BASE
from console.course.course import Ending
from console.course.session import is_done
from console.errors import RecordBroken
from console.record.course import read_course
from console.record.run import RunFiles, read_run
from console.verdict import FRUITLESS

SIGNALLED = 128
SETTLED = (3, FRUITLESS)
"""Diverged, nothing to learn from: what a run came to, which another start would come to again."""


class RungState(StrEnum):
    """State of one run."""

    DONE = "done"
    """All steps; it counts. One with a status had nothing to learn from in them, for all rewards
    of a group were equal; the base does not count so, since all are compared with it."""
    FAILED = "failed"
    """It ended by itself with another status than 0, and does not count."""
    UNFINISHED = "unfinished"
    """Stopped or killed, or it has steps to go."""
    NOT_RUN = "not run"
    """Nothing of it is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One run. files: what is there of it. status: its exit code; 0 where it has none."""

    variation: str
    seed: int
    folder: Path
    word: RungState
    files: RunFiles
    status: int = 0
    sentence: str = ""


def standing(rung: Rung, heard: Ending | None) -> Standing:
    """heard: how its start ended, where it was started now."""
    files, why = _files(rung)
    word, status, sentence = _told(files, rung)
    agrees = heard is not None and (word, status) == (RungState.DONE, heard.status)
    if heard is not None and 0 < heard.status < SIGNALLED and not agrees:
        word, status, sentence = RungState.FAILED, heard.status, heard.sentence
    if word is RungState.NOT_RUN:
        sentence = why
    return Standing(
        variation=rung.variation.name,
        seed=rung.seed,
        folder=rung.folder,
        word=word,
        status=status,
        sentence=sentence,
        files=files or RunFiles(folder=rung.folder, name=rung.name),
    )


def has_to_run(rung: Rung) -> bool:
    """Whether a start has anything to do. NothingStarted."""
    try:
        course = read_course(rung.folder)
        if course.ended is not None and course.ended.status in SETTLED:
            before = noted(rung.folder) or rung.learning
            return before.get(BUDGET) != rung.learning[BUDGET]
        return not is_done(set_up(rung.options), course)
    except RecordBroken:
        return True  # its start says what is broken


def _files(rung: Rung) -> tuple[RunFiles | None, str]:
    """What there is of its run, as far as it is this recipe's, and why there is nothing."""
    if not rung.folder.is_dir():
        return None, ""
    if changed := another(rung):
        return None, f"what is there was begun with another {next(iter(changed))}"
    try:
        return read_run(rung.folder, rung.name), ""
    except RecordBroken as error:
        return None, str(error)


def _told(files: RunFiles | None, rung: Rung) -> tuple[RungState, int, str]:
    if files is None or not (files.course.starts or files.steps):
        return RungState.NOT_RUN, 0, ""
    ended = files.course.ended
    steps = int(rung.learning[BUDGET])
    made = f"{files.steps} of {steps} steps"
    if ended is not None and ended.status == FRUITLESS and files.steps >= steps:
        counts = rung.variation.name != BASE and _measured(files)
        return RungState.DONE if counts else RungState.FAILED, ended.status, ended.sentence
    if ended is not None and 0 < ended.status < SIGNALLED:
        return RungState.FAILED, ended.status, ended.sentence
    if ended is None or ended.status or files.steps < steps:
        return RungState.UNFINISHED, 0 if ended is None else ended.status, made
    return RungState.DONE, 0, ""


def _measured(files: RunFiles) -> bool:
    """Whether any reward was: where every trajectory was masked, tools were away, say."""
    return any(step.reward is not None for step in files.record.steps)
