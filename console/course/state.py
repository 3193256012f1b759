"""What state a run is in, from what its folder tells and who lives: for `toolwright status`.

Pure. A run that `toolwright run` started is over when that said so, or when its process is gone;
one that was started otherwise goes on while its engine answers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from console.record.course import CourseRecord, ProcessRecord
from console.record.run import RunFiles
from console.watch import doubts, pace

StateWord = Literal["running", "done", "failed", "stopped", "killed", "unknown"]
KILLED = 1
SIGNALLED = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """alive: None where it is another machine's, or was found and not started."""

    name: str
    what: str
    pid: int
    alive: bool | None
    address: str
    log: str


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """step: steps made. left_s: seconds until the last step. status: the exit code so far, 0 while
    it runs. evaluations: the newest mean reward of each suite."""

    word: StateWord
    sentence: str
    status: int
    stage: str = ""
    step: int = 0
    steps: int | None = None
    reward: float | None = None
    evaluations: dict[str, float] = field(default_factory=dict)
    left_s: float | None = None
    doubts: tuple[str, ...] = ()
    processes: tuple[Process, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def state_of(
    run: RunFiles, *, here: bool, lives: Callable[[int, float], bool], answers: bool
) -> State:
    """here: the last start was on this machine, so that `lives(pid, created)` means something.
    answers: the run's engine does."""
    word, sentence, status = how_it_stands(
        run.folder,
        run.course,
        trained=run.planned is not None and run.steps >= run.planned,
        here=here,
        lives=lives,
        answers=answers,
    )
    steps = run.record.steps
    last = steps[-1] if steps else None
    going = word == "running"
    newest = {one.suite: one.reward for one in run.record.evaluations}
    return State(
        word=word,
        sentence=sentence,
        status=status,
        stage=run.course.stages[-1].text if run.course.stages and going else "",
        step=run.steps,
        steps=run.planned,
        reward=last.reward if last is not None else None,
        evaluations=newest,
        left_s=_left(run) if going else None,
        doubts=tuple(doubts.of_steps(steps, run.resolved.text("task.reward"))),
        processes=tuple(_process(one, here=here, lives=lives) for one in run.course.processes),
    )


def how_it_stands(
    folder: Path,
    course: CourseRecord,
    *,
    trained: bool,
    here: bool,
    lives: Callable[[int, float], bool],
    answers: bool,
) -> tuple[StateWord, str, int]:
    """(word, sentence, exit code). trained: all planned steps are made; others: as `state_of`."""
    if not course.starts:
        if answers:
            return "running", "its engine answers", 0
        if trained and (folder / "final").is_dir():
            return "done", f"the policy is in {folder / 'final'}", 0
        return "unknown", "no engine of it answers, and it has steps to go", KILLED
    ended = course.ended
    if ended is not None:
        if ended.status > SIGNALLED:
            return "stopped", ended.sentence, ended.status
        return "failed" if ended.status else "done", ended.sentence, ended.status
    start = course.starts[-1]
    if lives(start.pid, start.created) if here else answers:
        return "running", f"process {start.pid} of {start.host or 'this machine'}", 0
    if not here:
        return (
            "unknown",
            f"it was started on {start.host} and its engine does not answer from here",
            KILLED,
        )
    return "killed", "toolwright run was killed; the same command goes on", KILLED


def _process(one: ProcessRecord, *, here: bool, lives: Callable[[int, float], bool]) -> Process:
    alive: bool | None = None
    if one.state == "ended":
        alive = False
    elif one.state == "started" and here:
        alive = lives(one.pid, one.created)
    return Process(
        name=one.name, what=one.what, pid=one.pid, alive=alive, address=one.address, log=one.log
    )


def _left(run: RunFiles) -> float | None:
    if not run.record.steps or run.planned is None:
        return None
    return pace.of_steps(
        run.record.steps[-pace.RECENT :], last=run.planned, since_s=0.0, afterwards_s=0.0
    )
