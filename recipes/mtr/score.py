"""MTR's reward function: the tier of a trace's answers, and what its repeated calls cost.

In training the parts are `answer` and `repetition`, whose sum is the reward (MTR, equation 3). An
evaluation's reward is exact match of the final answer, whatever the options are, and beside it
stands what the agent did. In training that is an event of the kind `measured`, for the logs alone.
"""

from __future__ import annotations

from engine.api import Score
from tasks.judging import words
from toolwright.types import Purpose, Trajectory

from .rewards import Repetition, Tiers, total_reward
from .traces import Trace, read


class MtrReward(Repetition):
    """The reward function, with its options."""

    tiers: Tiers = Tiers()
    single_final_only: bool = False
    """A right intermediate answer beside a wrong final one is worth nothing."""

    def __call__(self, trajectory: Trajectory) -> Score:
        trace, golds = read(trajectory), trajectory.task.answers
        if trajectory.task.purpose is not Purpose.TRAIN:
            return _evaluated(trace, golds)
        parts = total_reward(
            trace.final,
            trace.intermediate,
            golds,
            (call.text for call in trace.calls),
            tiers=self.tiers,
            repetition=self,
            single_final_only=self.single_final_only,
        )
        return Score.of(parts, measured=measured(trace, golds))


def measured(trace: Trace, golds: tuple[str, ...]) -> dict[str, float]:
    """Figures of one trace. One that means nothing for it is left out: `malformed`, the share of
    calls that were refused, without a call; `disagreement`, whether its two answers differ, without
    both; `recovered`, whether all errors were corrected, without one."""
    data = {"right": float(_right(trace, golds)), "calls": float(len(trace.calls))}
    if trace.calls:
        refused = sum(call.malformed for call in trace.calls)
        data["malformed"] = refused / len(trace.calls)
    if trace.final is not None and trace.intermediate is not None:
        same = words.normalise(trace.final) == words.normalise(trace.intermediate)
        data["disagreement"] = float(not same)
    if trace.errors:
        data["recovered"] = float(not trace.unrecovered)
    return data


def _evaluated(trace: Trace, golds: tuple[str, ...]) -> Score:
    """Parts are means over all traces. Each rate has a denominator of its own: calls, traces with
    both answers, traces with an error."""
    right = float(_right(trace, golds))
    disagreement = measured(trace, golds).get("disagreement")
    erred = trace.errors > 0
    parts = {
        "answer": right,
        "f1": 0.0 if trace.final is None else words.f1(trace.final, golds),
        "calls": float(len(trace.calls)),
        "erred": float(erred),
    }
    shares = {
        "malformed": [sum(call.malformed for call in trace.calls), len(trace.calls)],
        "disagreement": [disagreement or 0.0, int(disagreement is not None)],
        "recovered": [int(erred and not trace.unrecovered), int(erred)],
    }
    return Score.of(parts, reward=right, shares=shares)


def _right(trace: Trace, golds: tuple[str, ...]) -> bool:
    return trace.final is not None and words.exact_match(trace.final, golds)
