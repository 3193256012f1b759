"""SEARL's reward function: the outcome, and what each step is worth.

Parts, each with its turn: `plan` (turn 0), `format`, `create`, `execute`, `redundant`; `answer`
belongs to the whole. A creation and its first run are two events: created and run +0.2,
created and the first run failed 0, refused -0.1 with the default weights. That a made tool is one
that was recommended is found out by the group hook, which has the memory's canonical names.

An evaluation's reward is plain accuracy (tasks.judging.accuracy), whatever the training options
say. `em` and `f1` stand beside it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import PrivateAttr

from engine.api import Score
from tasks.judging.accuracy import Accuracy
from tasks.judging.answer_judge import AnswerJudge, Kind
from toolwright.types import Purpose, RewardPart, ToolErrorKind, Trajectory

from .course import Course, Step, meets_format, read
from .rewards import RIGHT, STRICT, STRICT_WRONG, WEIGHTS, outcome_released, step_reward_released
from .steps import final_answer
from .words import Words


class SearlReward(Words):
    """The reward function, with its options."""

    weights: Mapping[str, float] = {}
    """By event, over the defaults."""
    strict: bool = False
    """The mostly negative preset."""
    right: float = RIGHT
    wrong: float | None = None
    """Worth of a wrong answer; None = that of the preset."""
    step_rewards: bool = True
    """False for the ablation without them."""
    mode: Literal["paper", "released"] = "paper"
    judge: Kind = "auto"
    """What compares answers (tasks.judging.answer_judge)."""
    opinion: Mapping[str, Any] = {}
    """The model that judges evaluations in its place: the options of OpinionJudge."""
    _judge: AnswerJudge = PrivateAttr()
    _accuracy: Accuracy = PrivateAttr()
    _weights: Mapping[str, float] = PrivateAttr()

    def model_post_init(self, context: object) -> None:
        self._weights = {**(STRICT if self.strict else WEIGHTS), **self.weights}
        if unknown := sorted(set(self._weights) - set(WEIGHTS)):
            raise ValueError(f"weights of {unknown}: there are {', '.join(WEIGHTS)}")
        self._judge = AnswerJudge(self.judge)
        self._accuracy = Accuracy(self._judge.right, self.opinion)

    async def __call__(self, trajectory: Trajectory) -> Score:
        course = read(trajectory, self)
        texts = [str(text) for text in trajectory.metadata.get("texts", ())]
        answer = final_answer(texts[-1] if texts else "", self.tags)
        if trajectory.task.purpose is not Purpose.TRAIN:
            found = await self._accuracy.parts(trajectory.task, answer)
            return Score.of(found, reward=found["answer"])
        if self.mode == "released":
            f1 = await asyncio.to_thread(self._judge.f1, answer, trajectory.task)
            return Score(parts=list(self._released_parts(trajectory, course, f1)))
        wrong = (STRICT_WRONG if self.strict else 0.0) if self.wrong is None else self.wrong
        right = await asyncio.to_thread(self._judge.right, answer, trajectory.task)
        parts = [RewardPart(name="answer", value=self.right if right else wrong)]
        if self.step_rewards and texts:
            parts += self._steps(course)
        return Score(parts=parts)

    def _steps(self, course: Course) -> Iterator[RewardPart]:
        yield self._part("plan", "plan_fail" if course.plan is None else "plan_ok", 0)
        for step in course.steps:
            for name, event in events_of(step):
                yield self._part(name, event, step.turn)
        seen: set[str] = set()
        for step in course.steps:
            if step.call is not None and step.tool:
                if step.pair in seen:
                    yield self._part("redundant", "redundant", step.turn)
                seen.add(step.pair)

    def _part(self, name: str, event: str, turn: int) -> RewardPart:
        return RewardPart(name=name, value=self._weights[event], turn=turn)

    def _released_parts(
        self, trajectory: Trajectory, course: Course, f1: float
    ) -> Iterator[RewardPart]:
        expected = trajectory.task.metadata.get("expected_calls")
        outcome = outcome_released(
            f1,
            format_ok=not any(step.wrong for step in course.steps),
            n_calls=sum(step.call is not None for step in course.steps),
            expected_calls=expected if isinstance(expected, int) else None,
        )
        yield RewardPart(name="answer", value=outcome)
        for step in course.steps:
            tools = "answer" if step.call is None else [step.tool or "<empty>"]
            value = step_reward_released(tools, int(step.creates))
            yield RewardPart(name="step", value=value, turn=step.turn)


def events_of(step: Step) -> Iterator[tuple[str, str]]:
    """Names of the parts of a step, and the events that say their weight."""
    yield "format", "format_fail" if step.wrong else "format_ok"
    if step.call is None:
        return
    if step.creates and refused(step):
        yield "create", "create_fail"
        return
    if step.registers:
        yield "create", "create_ok"
    yield "execute", "exec_ok" if step.worked else "exec_fail"


def refused(step: Step) -> bool:
    """Whether a creation did not meet the registration format: then nothing was run."""
    if step.worked:
        return False
    invalid = step.call is not None and step.call.outcome.error is ToolErrorKind.INVALID_ACTION
    return invalid or not meets_format(step.arguments or {})
