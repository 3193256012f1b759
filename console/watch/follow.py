"""Follows a run folder while its processes write to it, and keeps a status current.

It reads files and asks the engine, whose address they tell; nothing here changes the run. It may
begin before the folder is there, or in the middle of the run, and on another machine: an engine
that does not answer is asked again, and the files are read all the same.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from pathlib import Path

from console.errors import RecordBroken
from console.record import files
from console.record.course import CourseRecord, read_course
from console.record.resolved import Resolved, read_resolved
from console.record.tail import Tail
from console.record.types import Evaluation, Step, way_of
from console.watch import doubts, engine, pace
from console.watch.engine import EngineSays
from console.watch.status import Status

INTERVAL_S = 0.5
SELDOM_S = 3.0
"""Between looks at what changes rarely: the recipe as it was read, the course."""
NEWEST = 64
RATE_S = 10.0
"""Tokens and calls a second are those of this long."""
WARM_UP = "sft"
"""The course's name of that stage."""
AWAY_S = 15.0
"""An engine that was heard and then is silent so long is doubted."""

AFTER_WARM_UP = ("learn", "evaluate")
PACED = (WARM_UP, *AFTER_WARM_UP)
"""Stages of a course that go on at a pace."""


class Follower:
    """One run. `look` brings the status up to date, again and again."""

    def __init__(self, folder: Path, status: Status, engine: str = "") -> None:
        """engine: an address that the user typed, in place of the folder's."""
        self.status = status
        self._engine = engine
        self.course = CourseRecord()
        self.resolved = Resolved()
        self.says: EngineSays | None = None
        self._folder = folder
        self._steps = Tail(folder / files.STEPS)
        self._imitation = Tail(folder / files.IMITATION)
        self._evaluations = Tail(folder / files.EVALUATIONS)
        self._imitated: deque[Step] = deque(maxlen=NEWEST)
        self._answers: deque[EngineSays] = deque()
        self._heard_first: EngineSays | None = None
        self._line_at = time.monotonic()
        self._looked = -SELDOM_S
        self._first_evaluation_s = 0.0

    async def look(self) -> None:
        """Reads what is new and asks the engine, ANSWER_S at most."""
        now = time.monotonic()
        if now - self._looked >= SELDOM_S or self._entered_a_stage():
            self._looked = now
            self._seldom()
        # A run of many steps is read for a while when it is looked at first.
        await asyncio.to_thread(self._lines, now)
        self.says = await engine.ask_of(self._folder, self.resolved, self._engine)
        if self.says is not None:
            if self._heard_first is None and self.says.accepted:
                self._heard_first = self.says
            self._answers.append(self.says)
            while self._answers[-1].at - self._answers[0].at > RATE_S:
                self._answers.popleft()
        self._tell(now)

    @property
    def batch(self) -> int:
        """Trajectories of a step; 0 where the recipe does not tell."""
        groups, size = (self.resolved.whole(f"run.{n}") for n in ("groups_per_step", "group_size"))
        return (groups or 0) * (size or 0)

    def _seldom(self) -> None:
        self.resolved = read_resolved(self._folder)
        try:
            self.course = read_course(self._folder)
        except (OSError, RecordBroken):
            return  # the report says what is broken; who watches sees the rest
        if self.course.stages:
            *before, stage = self.course.stages
            self.status.stage, self.status.stage_at = stage.text, stage.at
            self.status.before_s = sum(one.seconds for one in before)
        self.status.memory = self.status.memory or self.course.peak_memory

    def _lines(self, now: float) -> None:
        status = self.status
        for row in self._imitation.read():
            if (one := files.step(row)) is not None:
                self._imitated.append(one)
        for row in self._evaluations.read():
            if (measured := files.evaluation(row)) is not None:
                # A new one, since the view reads the old one on the event loop meanwhile.
                status.evaluations = self._in_order(
                    {**status.evaluations, measured.suite: measured}
                )
                if measured.step == 0:
                    # Suites of one version run side by side.
                    self._first_evaluation_s = max(self._first_evaluation_s, measured.seconds)
        for row in self._steps.read():
            if (one := files.step(row)) is not None:
                self._line_at = now
                status.newest = [*status.newest[-NEWEST + 1 :], one]

    def _in_order(self, found: dict[str, Evaluation]) -> dict[str, Evaluation]:
        """Those that the report speaks of first, the others as the recipe has them."""
        wanted = [shown.name for shown in self.resolved.words.suites]
        order = {name: place for place, name in enumerate([*wanted, *self.resolved.suites])}
        return dict(
            sorted(
                found.items(),
                key=lambda item: order.get(
                    way_of(item[0], item[1].temperature)[0], order.get(item[0], len(order))
                ),
            )
        )

    def _tell(self, now: float) -> None:
        status, says = self.status, self.says
        planned = self.resolved.whole("run.steps") or 0
        if not self.course.stages and (status.newest or says is not None):
            status.stage = "training"
        elif not self.course.stages and self._imitated:
            status.stage = "imitation"
        if status.newest or says is not None or self._trains():
            status.step, status.steps = status.last.step, planned
            self._left(now, planned)
        elif self._imitated and (self._warms_up() or not self.course.stages):
            self._tell_imitation()
        heard = self._answers[-1] if self._answers else None
        first = self._answers[0] if self._answers else None
        if says is not None and first is not None:
            status.tokens_per_second = says.rate(first, "tokens")
            status.calls_per_second = says.rate(first, "calls")
        elif status.newest:
            status.tokens_per_second = status.last.tokens_per_second
        elif self._trains():
            status.tokens_per_second = status.calls_per_second = None
        if self.course.stages and self.course.stages[-1].name not in PACED:
            status.forget_pace()
        asked = bool(self.resolved.text("run.engine")) and heard is not None
        status.doing = engine.doing(says, batch=self.batch, steps=planned) if asked else {}
        if self._warms_up() and not self._imitated:
            status.doing["warm-up"] = "loading the model"
        if any(self._folder.glob("checkpoints/.step-*.unfinished")):
            status.doing["learner"] = "writes a checkpoint"
        status.doubts = doubts.of_steps(status.newest, self.resolved.text("task.reward"))
        if sentence := engine.not_asked(self.resolved, self._engine):
            status.doubts.append(sentence)
        if says is not None:
            status.doubts += doubts.of_engine(says.state, says.texts)
        elif heard is not None and now - heard.at > AWAY_S and status.last.step < planned:
            status.doubts.append(f"the engine has not answered for {now - heard.at:.0f} s")

    def _entered_a_stage(self) -> bool:
        """The screen shows a stage that the course as it was read does not have yet."""
        return bool(self.course.stages) and self.course.stages[-1].text != self.status.stage

    def _trains(self) -> bool:
        """The course is at the stage of reinforcement learning, or of an evaluation around it: the
        warm-up's counter is no longer the stage's."""
        return bool(self.course.stages) and self.course.stages[-1].name in AFTER_WARM_UP

    def _warms_up(self) -> bool:
        return bool(self.course.stages) and self.course.stages[-1].name == WARM_UP

    def _left(self, now: float, planned: int) -> None:
        status, says = self.status, self.says
        over = any(e.step == planned for e in status.evaluations.values())
        afterwards = 0.0 if over else self._first_evaluation_s
        status.left_s = None
        if status.newest:
            status.left_s = pace.of_steps(
                status.newest, last=planned, since_s=now - self._line_at, afterwards_s=afterwards
            )
        if status.left_s is None and says is not None and self._heard_first is not None:
            status.left_s = pace.of_first_batches(
                accepted=says.accepted - self._heard_first.accepted,
                batch=self.batch,
                elapsed_s=says.at - self._heard_first.at,
                made=status.last.step,
                steps=planned,
                afterwards_s=afterwards,
            )

    def _tell_imitation(self) -> None:
        status = self.status
        planned = self.resolved.whole("sft.steps") or 0
        status.step, status.steps = self._imitated[-1].step, planned
        status.tokens_per_second = self._imitated[-1].values.get("tokens_per_s")
        status.left_s = pace.of_steps(
            list(self._imitated), last=planned, since_s=0.0, afterwards_s=0.0
        )


async def follow(folder: Path, status: Status, engine: str = "") -> None:
    """Keeps `status` current, until it is cancelled. engine: as for `Follower`."""
    follower = Follower(folder, status, engine)
    while True:
        await follower.look()
        await asyncio.sleep(INTERVAL_S)
