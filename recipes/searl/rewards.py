"""SEARL's rewards: what the events of a step are worth, and which trajectory of a group is best.

The paper names the events and gives no magnitude but that of a right answer (section 3.2). The
defaults stand on the unit of the released code, 0.1; STRICT is for its mostly negative curves
(section 4.6). What the released code computes instead is at the end, for comparison runs. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

RIGHT = 1.0

WEIGHTS: Mapping[str, float] = {
    "plan_ok": 0.1,
    "plan_fail": -0.05,
    "create_ok": 0.1,  # the registration format is met: its first run is a call of its own
    "create_fail": -0.1,
    "exec_ok": 0.1,
    "exec_fail": -0.1,
    "redundant": -0.05,
    "format_ok": 0.1,
    "format_fail": 0.0,
}
STRICT: Mapping[str, float] = {**WEIGHTS, "create_fail": -0.2, "redundant": -0.1}
STRICT_WRONG = -1.0
"""For a wrong answer, where the defaults give 0."""


def step_reward(events: Iterable[str], weights: Mapping[str, float] = WEIGHTS) -> float:
    """The sum over the events of a step. Raises KeyError for an event without a weight."""
    return math.fsum(weights[event] for event in events)


def best_trajectory(outcomes: Sequence[float], step_rewards: Sequence[Sequence[float]]) -> int:
    """The place of the trajectory whose tools are registered: outcome plus its steps' rewards, the
    first of equals (appendix E.1; the released code leaves the outcome out)."""
    totals = [
        outcome + math.fsum(steps) for outcome, steps in zip(outcomes, step_rewards, strict=True)
    ]
    return max(range(len(totals)), key=lambda place: (totals[place], -place))


UNIT = 0.1
"""The released code's f."""


def outcome_released(
    f1: float, *, format_ok: bool, n_calls: int, expected_calls: int | None
) -> float:
    """envs/reward_utils.py: too few calls cost as much as too many; a wrong answer is -1."""
    answer = 1.5 * f1 if f1 > 0 else -1.0
    tools = 0.0
    if expected_calls is not None:
        off = abs(n_calls - expected_calls)
        tools = UNIT if off <= 1 else -UNIT / 2 * (off - 1)
    return answer + (UNIT if format_ok else -UNIT) + tools


def step_reward_released(tools: Sequence[str] | str, n_created: int, f: float = UNIT) -> float:
    """envs/mcp_base.py, get_step_reward: by parsing alone, never by what a call came to.

    tools: names of the step's calls, "<error>" for one that is not closed, "<empty>" for one that
    is no JSON; "answer" for a step without calls.
    """
    if tools == "answer" or not tools:
        return 0.0
    if tools[0] == "<empty>":
        return -f / 2
    broken = sum(name == "<error>" for name in tools)
    return f * (len(tools) - 2 * broken + n_created) / len(tools)
