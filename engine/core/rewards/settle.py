"""A finished trajectory with its score and what the rules make of its stop; pure.

Why the trajectory ended stays as it was: a reward that failed is an event of it and no stop reason.
"""

from __future__ import annotations

from dataclasses import replace

from engine.core.rewards.overlong import PART, penalty
from engine.core.rewards.score import Score
from engine.core.rewards.stops import StopRules, verdict
from toolwright.types import Event, Purpose, RewardPart, Status, Trajectory


def settled(trajectory: Trajectory, score: Score | None, rules: StopRules) -> Trajectory:
    """The trajectory as its reward function and the recipe's rules leave it.

    score: None for one that was not scored, as infrastructure ended it. The rules are for
    training: an evaluation reports the reward alone. Length is paid for first, so that
    a rule which sets the reward sets it whatever the length.
    """
    done = trajectory if score is None else scored(replace(trajectory, reward=0.0), score)
    if trajectory.task.purpose is not Purpose.TRAIN:
        return done
    if score is not None and not score.failed and rules.overlong is not None:
        done = _paying_for_length(done, penalty(done, rules.overlong))
    found = verdict(done, rules)
    masked = done.masked or found.masked
    if score is not None and score.keep and trajectory.status is not Status.ERRORED:
        masked = False
    parts, events = done.reward_parts, done.events
    if found.adjustment:
        # A part, so that the parts still tell what the reward is made of.
        parts = (*parts, RewardPart(name="stop", value=found.adjustment))
    if found.reasons and trajectory.status is not Status.ERRORED:
        data = {"rules": list(found.reasons), "masked": masked, "reward": found.adjustment}
        events = (*events, Event(kind="stop_rules", turn=0, data=data))
    return replace(
        done,
        reward=done.reward + found.adjustment,
        reward_parts=parts,
        masked=masked,
        events=events,
        outside_baseline=done.outside_baseline or (masked and found.outside_baseline),
    )


def _paying_for_length(trajectory: Trajectory, taken: float) -> Trajectory:
    """With what its length costs, 0 or below, as a part of the reward."""
    if not taken:
        return trajectory
    return replace(
        trajectory,
        reward=trajectory.reward + taken,
        reward_parts=(*trajectory.reward_parts, RewardPart(name=PART, value=taken)),
    )


def scored(trajectory: Trajectory, score: Score) -> Trajectory:
    """The trajectory with what a score adds to it. The score is the reward function's for a
    trajectory without one, and the group hook's for a trajectory that is settled."""
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
    )
