"""The reward function of the mathematics task: the boxed answer, and whether a program was run.

Parts in training: `accuracy` and `tool`; their sum is the reward. An evaluation's reward is plain
accuracy, 0 or 1, whatever the options are, and beside it stands what the agent did.

Invariants
- Only what the policy wrote is scored: nothing of the prompt, and nothing that a program printed.
- An answer counts where the policy ended its turn itself. One that is cut off has none, so nothing
  pays for a policy that does not stop.
- A tool is used where a program was run, whatever became of it. An action without a program is no
  use, and neither is a call that the last turn did not make any more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from engine.api import Score as EngineScore
from tasks.judging.outcomes import TOOL_PENALTY
from tasks.judging.symbols import shared_judge
from toolwright.types import (
    Event,
    Purpose,
    RewardPart,
    StopReason,
    ToolErrorKind,
    Trajectory,
)

from .rewards import CONDITIONS, Condition, boxed, math_reward


class Score:
    """Options: `tool_penalty` (0 = accuracy alone, as in VerlTool's released code) and
    `tool_penalty_condition` = "tool_used" or "match"; `seconds` of CPU for the comparison of two
    expressions, and `workers`, processes that compare."""

    def __init__(
        self,
        *,
        tool_penalty: float = TOOL_PENALTY,
        tool_penalty_condition: Condition = "tool_used",
        seconds: float = 5.0,
        workers: int = 2,
    ) -> None:
        """ValueError for an option that is none."""
        if tool_penalty_condition not in CONDITIONS:
            known = " or ".join(map(repr, CONDITIONS))
            raise ValueError(f"tool_penalty_condition = {tool_penalty_condition!r}: write {known}")
        number = isinstance(tool_penalty, int | float) and not isinstance(tool_penalty, bool)
        if not number or not math.isfinite(tool_penalty) or tool_penalty > 0:
            raise ValueError(f"tool_penalty = {tool_penalty!r}: write what is added, 0 or less")
        self._penalty, self._condition = tool_penalty, tool_penalty_condition
        self._judge = shared_judge(seconds, workers)

    def __call__(self, trajectory: Trajectory) -> EngineScore:
        answer = _answer(trajectory)
        correct = self._judge.right(answer, trajectory.task.answers)
        done = {"answered": float(answer is not None), **_programs(trajectory)}
        if trajectory.task.purpose is not Purpose.TRAIN:
            parts = {"accuracy": float(correct), **done}
            return EngineScore(reward=parts["accuracy"], parts=_parts(parts))
        parts = math_reward(
            correct=correct,
            tool_used=done["programs"] > 0,
            condition=self._condition,
            penalty=self._penalty,
        )
        event = Event(kind="measured", turn=0, data={"right": float(correct), **done})
        return EngineScore(parts=_parts(parts), events=(event,))


def _answer(trajectory: Trajectory) -> str | None:
    if trajectory.stop_reason is not StopReason.ANSWERED:
        return None
    return boxed([str(text) for text in trajectory.metadata.get("texts", ())])


def _programs(trajectory: Trajectory) -> dict[str, float]:
    """How many were run, and how many of those failed."""
    run = [call.outcome for call in trajectory.calls if call.outcome.valid]
    failed = sum(outcome.error is not ToolErrorKind.NONE for outcome in run)
    return {"programs": float(len(run)), "failed": float(failed)}


def _parts(values: Mapping[str, float]) -> list[RewardPart]:
    return [RewardPart(name=name, value=value) for name, value in values.items()]
