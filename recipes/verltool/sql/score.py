"""VerlTool's reward for SQL: 1 where the solution's rows are the right ones, -1 otherwise (eq. 8).

The `sql` tool ran the solution in its sandbox (`sql.solution_json`). This module only compares its
rows with the gold query's rows, which the task's answer has. No statement of a policy runs here. A
solution has no rows if it failed, took too long, or gave more than the tool returns. A trajectory
that breaks the form is worth -1, whatever its rows are.

An evaluation's reward is plain accuracy, 1 or 0: the rows are right, whatever the form.
"""

from __future__ import annotations

from engine.api import Options, Score
from tasks.judging import outcomes
from tasks.judging.gold_rows import read_gold, read_rows
from tasks.judging.tables import same_rows
from toolwright.types import CallOutcome, Purpose, ToolErrorKind, Trajectory

from .form import well_formed


class SqlReward(Options):
    """The reward function."""

    think: bool = True
    """The form asks for a thought in every turn."""

    def __call__(self, trajectory: Trajectory) -> Score:
        """Raises ValueError if the task has no right rows."""
        right = is_right(trajectory)
        texts = [str(text) for text in trajectory.metadata.get("texts", ())]
        form = well_formed(texts, think=self.think)
        figures = {"right": float(right), "form": float(form), "queries": queries(trajectory)}
        if trajectory.task.purpose is not Purpose.TRAIN:
            return Score.of(figures, reward=float(right))
        worth = outcomes.signed(right, well_formed=form)
        return Score.of({"execution": worth}, measured=figures)


def is_right(trajectory: Trajectory) -> bool:
    """Whether the solution gave the rows of the gold query."""
    gold = read_gold(trajectory.task.answers)
    outcome = _solution(trajectory)
    if outcome is None or outcome.truncated or outcome.error is not ToolErrorKind.NONE:
        return False
    rows = read_rows(outcome.observation)
    return rows is not None and same_rows(rows, gold.rows, ordered=gold.ordered)


def queries(trajectory: Trajectory) -> float:
    """How many of its statements before the solution the tool understood."""
    return float(sum(call.outcome.valid and not call.outcome.done for call in trajectory.calls))


def _solution(trajectory: Trajectory) -> CallOutcome | None:
    """What the tool said of the statement that ended the trajectory."""
    last = trajectory.calls[-1].outcome if trajectory.calls else None
    return last if last is not None and last.done and last.valid else None
