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

from engine.api import Score as EngineScore
from tasks.judging.accuracy import Accuracy
from tasks.judging.answer_judge import AnswerJudge, Kind
from toolwright.types import Purpose, RewardPart, ToolErrorKind, Trajectory

from .course import Course, Step, Words, meets_format, read
from .rewards import RIGHT, STRICT, STRICT_WRONG, WEIGHTS, outcome_released, step_reward_released
from .steps import final_answer


class Score:
    """Options: `weights` (by event, over the defaults), `strict` (the mostly negative preset),
    `right` and `wrong` (of the answer), `step_rewards` = false for the ablation without them,
    `mode` = "released" for what the released code computes; `judge` = "words", "math" or "auto",
    which compares answers (tasks.judging.answer_judge); `opinion`, the model that judges
    evaluations in its place: `endpoint`, `model` and what else tasks.judging.opinion.OpinionJudge
    takes; the protocol's `tags`, `max_subtasks`,
    `strict_sections` and `plan_tool` where the recipe changes them."""

    def __init__(
        self,
        *,
        weights: Mapping[str, float] | None = None,
        strict: bool = False,
        right: float = RIGHT,
        wrong: float | None = None,
        step_rewards: bool = True,
        mode: Literal["paper", "released"] = "paper",
        judge: Kind = "auto",
        opinion: Mapping[str, Any] | None = None,
        **words: Any,
    ) -> None:
        self._weights = {**(STRICT if strict else WEIGHTS), **(weights or {})}
        unknown = sorted(set(self._weights) - set(WEIGHTS))
        if unknown:
            raise ValueError(f"weights of {unknown}: there are {', '.join(WEIGHTS)}")
        if mode not in ("paper", "released"):
            raise ValueError(f"mode = {mode!r}: write 'paper' or 'released'")
        self._right = right
        self._wrong = (STRICT_WRONG if strict else 0.0) if wrong is None else wrong
        self._step_rewards = step_rewards
        self._released = mode == "released"
        self._judge = AnswerJudge(judge)
        self._accuracy = Accuracy(self._judge.right, opinion)
        self._words = Words.of(words)

    async def __call__(self, trajectory: Trajectory) -> EngineScore:
        course = read(trajectory, self._words)
        texts = [str(text) for text in trajectory.metadata.get("texts", ())]
        last = texts[-1] if texts else ""
        answer = final_answer(last, self._words.tags)
        if trajectory.task.purpose is not Purpose.TRAIN:
            found = await self._accuracy.parts(trajectory.task, answer)
            parts = [RewardPart(name=name, value=value) for name, value in found.items()]
            return EngineScore(reward=found["answer"], parts=parts)
        if self._released:
            f1 = await asyncio.to_thread(self._judge.f1, answer, trajectory.task)
            return EngineScore(parts=list(self._released_parts(trajectory, course, f1)))
        right = await asyncio.to_thread(self._judge.right, answer, trajectory.task)
        parts = [RewardPart(name="answer", value=self._right if right else self._wrong)]
        if self._step_rewards and texts:
            parts += self._steps(course)
        return EngineScore(parts=parts)

    def _steps(self, course: Course) -> Iterator[RewardPart]:
        yield from self._plan(course)
        for step in course.steps:
            yield from self._step(step)
        yield from self._redundant(course)

    def _plan(self, course: Course) -> Iterator[RewardPart]:
        event = "plan_fail" if course.plan is None else "plan_ok"
        yield RewardPart(name="plan", value=self._weights[event], turn=0)

    def _step(self, step: Step) -> Iterator[RewardPart]:
        form = self._weights["format_fail" if step.wrong else "format_ok"]
        yield RewardPart(name="format", value=form, turn=step.turn)
        if step.call is None:
            return
        if step.creates and refused(step):
            yield RewardPart(name="create", value=self._weights["create_fail"], turn=step.turn)
            return
        if step.registers:
            yield RewardPart(name="create", value=self._weights["create_ok"], turn=step.turn)
        event = "exec_ok" if step.worked else "exec_fail"
        yield RewardPart(name="execute", value=self._weights[event], turn=step.turn)

    def _redundant(self, course: Course) -> Iterator[RewardPart]:
        """Calls that were made before, arguments and all."""
        seen: set[str] = set()
        for step in course.steps:
            if step.call is None or not step.tool:
                continue
            if step.pair in seen:
                value = self._weights["redundant"]
                yield RewardPart(name="redundant", value=value, turn=step.turn)
            seen.add(step.pair)

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


def refused(step: Step) -> bool:
    """Whether a creation did not meet the registration format: then nothing was run."""
    if step.worked:
        return False
    invalid = step.call is not None and step.call.outcome.error is ToolErrorKind.INVALID_ACTION
    return invalid or not meets_format(step.arguments or {})
