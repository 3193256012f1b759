"""The reward of deep search: whether the answer is right, and a little for calling a tool.

In training the parts are `answer` and `tool`, whose sum is the reward (VerlTool, arXiv:2509.01055,
equation 12; the formula is tasks.judging.outcomes.deep_search). An answer counts where the
trajectory ended with one, a call where its tool could read it.

An evaluation's reward is plain accuracy: the opinion of a model where the recipe names a judge,
else `right`. Beside it stand EM and F1, which need no judge, and what the agent did. A judge that
is away is no verdict: the reward function fails, and the engine reports that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from engine.api import Score as EngineScore
from tasks.judging import extract
from tasks.judging.accuracy import Accuracy
from tasks.judging.numbers import same_number_or_words
from tasks.judging.outcomes import TOOL_BONUS, deep_search
from toolwright.types import Event, Purpose, RewardPart, StopReason, Task, Trajectory

PYTHON = "python"
"""The tool that runs programs; what any other one is asked is a search."""


class Score:
    """Options: `wrong`, of a wrong answer or none (0 in the released code, -1 by equation 6), the
    `bonus` for a tool, and the `judge` of evaluations: `endpoint`, `model`, and what else
    tasks.judging.opinion.OpinionJudge takes (`key_variable`, `seconds`, `request`, ...)."""

    def __init__(
        self,
        *,
        wrong: float = 0.0,
        bonus: float = TOOL_BONUS,
        judge: Mapping[str, Any] | None = None,
    ) -> None:
        """ValueError for a number that cannot be used and a judge without its key; TypeError for a
        judge without endpoint or model."""
        if not _is_number(wrong) or wrong >= 1:
            raise ValueError(f"wrong = {wrong!r}: write a number below 1, as 0 or -1")
        if not _is_number(bonus) or bonus < 0:
            raise ValueError(f"bonus = {bonus!r}: write a number from 0 on")
        self._wrong, self._bonus = wrong, bonus
        self._accuracy = Accuracy(_right, judge)

    async def __call__(self, trajectory: Trajectory) -> EngineScore:
        answer = final_answer(trajectory)
        searches, programs = calls_made(trajectory)
        if trajectory.task.purpose is not Purpose.TRAIN:
            made = {"searches": float(searches), "programs": float(programs)}
            found = await self._accuracy.parts(trajectory.task, answer) | made
            return EngineScore(reward=found["answer"], parts=_parts(found))
        correct = _right(answer, trajectory.task)
        parts = deep_search(
            correct,
            tool_called=searches + programs > 0,
            wrong=self._wrong,
            bonus=self._bonus,
        )
        seen = {
            "right": float(correct),
            "searches": float(searches),
            "programs": float(programs),
            "both_tools": float(searches > 0 and programs > 0),
        }
        return EngineScore(parts=_parts(parts), events=(Event(kind="measured", turn=0, data=seen),))


def final_answer(trajectory: Trajectory) -> str | None:
    """What the last action of an answered trajectory has in its last answer block: the last box in
    it, else all of it. None for a trajectory that ended otherwise."""
    texts = trajectory.metadata.get("texts") or ("",)
    block = extract.last_block(str(texts[-1]))
    if trajectory.stop_reason is not StopReason.ANSWERED or block is None:
        return None
    return extract.final_answer(str(texts[-1]))


def calls_made(trajectory: Trajectory) -> tuple[int, int]:
    """Searches and programs that their tools could read."""
    understood = [call.outcome.tool or call.tool for call in trajectory.calls if call.outcome.valid]
    programs = understood.count(PYTHON)
    return len(understood) - programs, programs


def _right(answer: str | None, task: Task) -> bool:
    return same_number_or_words(answer, task.answers)


def _is_number(value: object) -> bool:
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return plain and math.isfinite(float(value))  # type: ignore[arg-type]


def _parts(values: Mapping[str, float]) -> list[RewardPart]:
    return [RewardPart(name=name, value=value) for name, value in values.items()]
