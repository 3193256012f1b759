"""Applies a score and the rules for stops to a finished trajectory; pure.

The stop reason never changes: a failed reward is an event.
"""

from __future__ import annotations

from dataclasses import replace

from engine.core.rewards.overlong import PART, penalty
from engine.core.rewards.reading import LARGEST
from engine.core.rewards.score import Score
from engine.core.rewards.stops import StopRules, stop_effect
from toolwright.types import Event, Purpose, RewardPart, Status, Trajectory, weighed

TOOL_REWARD = "tool_reward"
"""Name of the part that a tool's own reward becomes."""


def settled(trajectory: Trajectory, score: Score | None, rules: StopRules) -> Trajectory:
    """The trajectory after its reward function and the recipe's rules.

    score: None for a trajectory that infrastructure ended. The rules for stops and length apply to
    training only. The penalty for length comes first, so a rule that sets the reward overrides it.
    """
    done = trajectory if score is None else scored(replace(trajectory, reward=0.0), score)
    if score is not None and not score.failed and rules.tool_rewards:
        done = replace(done, reward_parts=(*done.reward_parts, *_tool_rewards(done)))
    if trajectory.task.purpose is not Purpose.TRAIN:
        return done
    if score is not None and not score.failed and rules.overlong is not None:
        done = _with_length_penalty(done, penalty(done, rules.overlong))
    effect = stop_effect(done, rules)
    masked = done.masked or effect.masked
    if score is not None and score.keep and trajectory.status is not Status.ERRORED:
        masked = False
    parts, events = done.reward_parts, done.events
    if effect.adjustment:
        # As a part, so that the parts still add up to the reward.
        parts = (*parts, RewardPart(name="stop", value=effect.adjustment))
    if effect.reasons and trajectory.status is not Status.ERRORED:
        data = {"rules": list(effect.reasons), "masked": masked, "reward": effect.adjustment}
        events = (*events, Event(kind="stop_rules", turn=0, data=data))
    return replace(
        done,
        reward=done.reward + effect.adjustment,
        reward_parts=parts,
        masked=masked,
        events=events,
        outside_baseline=done.outside_baseline or (masked and effect.outside_baseline),
    )


def _tool_rewards(trajectory: Trajectory) -> list[RewardPart]:
    """A part for each call whose result has a reward, in the order of the calls.

    A service may send any number; one that the learner's float32 cannot hold gives no part.
    """
    return [
        RewardPart(name=TOOL_REWARD, value=value, turn=call.turn)
        for call in trajectory.calls
        if (value := call.outcome.reward) is not None and abs(value) <= LARGEST
    ]


def _with_length_penalty(trajectory: Trajectory, taken: float) -> Trajectory:
    """Adds the penalty, 0 or below, as a part of the reward."""
    if not taken:
        return trajectory
    return replace(
        trajectory,
        reward=trajectory.reward + taken,
        reward_parts=(*trajectory.reward_parts, RewardPart(name=PART, value=taken)),
    )


def scored(trajectory: Trajectory, score: Score) -> Trajectory:
    """The trajectory with a score added: the reward function's, or later the group hook's."""
    errored = trajectory.status is Status.ERRORED
    masked = trajectory.masked
    if score.keep is not None:
        masked = errored or not score.keep
    added = score.total
    return replace(
        trajectory,
        reward=added if score.reward is not None else trajectory.reward + added,
        reward_parts=(*trajectory.reward_parts, *score.parts),
        masked=masked,
        events=(*trajectory.events, *score.events),
        anchors={**trajectory.anchors, **{turn: tuple(i) for turn, i in score.anchors.items()}},
        outside_baseline=trajectory.outside_baseline or score.outside_baseline,
        sequences=weighed(trajectory.sequences, score.weights),
    )
