"""Rewards that an outside agent, or its environment, reports. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from engine.core.rollout.outside_requests import CallRefused, Refusal
from engine.core.trajectory.events import Rewarded
from engine.core.trajectory.forest import Forest
from engine.core.trajectory.state import State
from toolwright.ingress.limits import MOST_PARTS
from toolwright.types import RewardPart

MOST_NAME = 256
"""Characters of a part's name."""


def has_reward(state: State) -> bool:
    """Whether a reward of the whole trajectory was reported."""
    report = state.reported
    return report is not None and (
        report.reward is not None or any(part.turn is None for part in report.parts)
    )


def checked_report(
    forest: Forest,
    state: State,
    reward: float | None,
    parts: Sequence[RewardPart],
    number: int | None,
) -> Rewarded:
    """The event of a report. number: completion that parts without a turn belong to, or None.

    Raises CallRefused for a number that is not finite, for an unknown completion or turn, and
    beyond `MOST_PARTS` and `MOST_NAME`.
    """
    if not all(map(math.isfinite, (reward or 0.0, *(part.value for part in parts)))):
        raise CallRefused(Refusal.UNFIT, "a reward and its parts are finite numbers")
    if number is not None:
        if number not in forest.accepted:
            raise CallRefused(Refusal.UNFIT, f"no accepted completion has the number {number}")
        turn = forest.node(number).turn
        parts = [replace(one, turn=turn) if one.turn is None else one for one in parts]
    for part in parts:
        if part.turn is not None and part.turn >= state.turn:
            raise CallRefused(
                Refusal.UNFIT, f"turn {part.turn} of a part; the trajectory has {state.turn} turns"
            )
    earlier = state.reported.parts if state.reported else ()
    named = {(part.name, part.turn) for part in (*earlier, *parts)}
    if len(named) > MOST_PARTS or any(len(part.name) > MOST_NAME for part in parts):
        raise CallRefused(
            Refusal.UNFIT,
            f"a reward has at most {MOST_PARTS} parts, with names of {MOST_NAME} characters",
        )
    return Rewarded(reward=reward, parts=tuple(parts))
