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

from pydantic import Field, PrivateAttr

from engine.api import Options, Score
from tasks.judging.outcomes import TOOL_PENALTY
from tasks.judging.symbols import MathJudge, shared_judge
from toolwright.types import Purpose, StopReason, ToolErrorKind, Trajectory

from .rewards import Condition, boxed, math_reward


class MathReward(Options):
    """The reward function, with its options."""

    tool_penalty: float = Field(TOOL_PENALTY, le=0)
    """Added where no tool was used; 0 = accuracy alone, as in VerlTool's released code."""
    tool_penalty_condition: Condition = "tool_used"
    seconds: float = 5.0
    """CPU time for the comparison of two expressions."""
    workers: int = 2
    """Number of processes that compare."""
    _judge: MathJudge = PrivateAttr()

    def model_post_init(self, context: object) -> None:
        self._judge = shared_judge(self.seconds, self.workers)

    def __call__(self, trajectory: Trajectory) -> Score:
        answer = _answer(trajectory)
        correct = self._judge.right(answer, trajectory.task.answers)
        done = {"answered": float(answer is not None), **_programs(trajectory)}
        if trajectory.task.purpose is not Purpose.TRAIN:
            return Score.of({"accuracy": float(correct), **done}, reward=float(correct))
        parts = math_reward(
            correct=correct,
            tool_used=done["programs"] > 0,
            condition=self.tool_penalty_condition,
            penalty=self.tool_penalty,
        )
        return Score.of(parts, measured={"right": float(correct), **done})


def _answer(trajectory: Trajectory) -> str | None:
    if trajectory.stop_reason is not StopReason.ANSWERED:
        return None
    return boxed([str(text) for text in trajectory.metadata.get("texts", ())])


def _programs(trajectory: Trajectory) -> dict[str, float]:
    """How many were run, and how many of those failed."""
    run = [call.outcome for call in trajectory.calls if call.outcome.valid]
    failed = sum(outcome.error is not ToolErrorKind.NONE for outcome in run)
    return {"programs": float(len(run)), "failed": float(failed)}
