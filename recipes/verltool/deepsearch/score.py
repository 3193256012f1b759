"""The reward of deep search: whether the answer is right, and a little for calling a tool.

In training the parts are `answer` and `tool`, whose sum is the reward (VerlTool, arXiv:2509.01055,
equation 12; the formula is tasks.judging.outcomes.deep_search). An answer counts where the
trajectory ended with one, a call where its tool could read it.

An evaluation's reward is plain accuracy: the opinion of a model where the recipe names a judge,
else `right`. Beside it stand EM and F1, which need no judge, and what the agent did. A judge that
is away is no verdict: the reward function fails, and the engine reports that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, PrivateAttr

from engine.api import Options, Score
from tasks.judging import extract
from tasks.judging.accuracy import Accuracy
from tasks.judging.numbers import same_number_or_words
from tasks.judging.outcomes import TOOL_BONUS, deep_search
from toolwright.types import Purpose, StopReason, Task, Trajectory

PYTHON = "python"
"""The tool that runs programs; what any other one is asked is a search."""


class DeepSearchReward(Options):
    """The reward function, with its options."""

    wrong: float = Field(0.0, lt=1)
    """Worth of a wrong answer or none: 0 in the released code, -1 by equation 6."""
    bonus: float = Field(TOOL_BONUS, ge=0)
    """Worth of a call of a tool."""
    judge: Mapping[str, Any] = {}
    """The model that judges evaluations: the options of tasks.judging.opinion.OpinionJudge."""
    _accuracy: Accuracy = PrivateAttr()

    def model_post_init(self, context: object) -> None:
        self._accuracy = Accuracy(_right, self.judge)

    async def __call__(self, trajectory: Trajectory) -> Score:
        answer = final_answer(trajectory)
        searches, programs = calls_made(trajectory)
        made = {"searches": float(searches), "programs": float(programs)}
        if trajectory.task.purpose is not Purpose.TRAIN:
            found = await self._accuracy.parts(trajectory.task, answer) | made
            return Score.of(found, reward=found["answer"])
        correct, called = _right(answer, trajectory.task), searches + programs > 0
        parts = deep_search(correct, tool_called=called, wrong=self.wrong, bonus=self.bonus)
        both = float(searches > 0 and programs > 0)
        return Score.of(parts, measured={"right": float(correct), **made, "both_tools": both})


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
