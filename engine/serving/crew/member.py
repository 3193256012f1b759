"""Members: trajectories whose logs have ended, and their scores.

Invariant: a score is an event of the member's log. A member that has its score is not scored again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from msgspec import structs

from engine.core.rewards.hook import GroupHook
from engine.core.rewards.rewards import Rewards
from engine.core.rewards.score import Score
from engine.core.rewards.settle import scored, settled
from engine.core.trajectory.events import Scored
from engine.core.trajectory.log import AttemptLog
from engine.core.trajectory.record import Identity, is_orphan, record, with_texts
from toolwright.types import Trajectory


@dataclass(frozen=True, kw_only=True)
class Member:
    """A trajectory whose log has ended."""

    log: AttemptLog
    identity: Identity

    @property
    def attempt(self) -> str:
        return self.log.attempt

    @property
    def trajectory(self) -> Trajectory:
        return record(self.log.state, self.identity)

    @property
    def serialized(self) -> None:
        """The record was made in this process."""
        return None

    @cached_property
    def unscored(self) -> Trajectory:
        """The record before anything scored the trajectory."""
        return record(structs.replace(self.log.state, rewarded=None, hooked=None), self.identity)

    @property
    def rewarded(self) -> Trajectory:
        """The record before the group hook scored it, even if an earlier life's hook has."""
        return record(structs.replace(self.log.state, hooked=None), self.identity)

    @property
    def failure(self) -> str:
        """Why infrastructure ended it; "" if it did not."""
        ended = self.log.state.ended
        return ended.error if ended else ""


def mark_orphans(members: list[Member]) -> list[Member]:
    """The members. Those whose parent's attempt was given up after they had branched are marked."""
    attempts = [member.log.attempt for member in members]
    return [
        replace(member, identity=replace(member.identity, orphan=True))
        if is_orphan(member.log.state, attempts)
        else member
        for member in members
    ]


async def score_members(
    members: Sequence[Member], rewards: Rewards, *, pauses: Sequence[float] = ()
) -> list[Score | None]:
    """Logs the score of each member, and the effect of the recipe's rules on how it ended. One call
    scores all members, except those that infrastructure ended: they get None.

    pauses: seconds before the reward function is called again if it failed.
    """
    living, scores, began = [m for m in members if not m.failure], list[Score](), time.monotonic()
    for pause in (*pauses, None) if living else ():
        seen = [with_texts(member.unscored, member.log.state) for member in living]
        scores = await rewards.score_group(seen)
        if pause is None or not any(score.failed for score in scores):
            break
        await asyncio.sleep(pause)
    seconds = time.monotonic() - began if living else 0.0
    given = dict(zip((m.identity.trajectory_id for m in living), scores, strict=True))
    found = [given.get(member.identity.trajectory_id) for member in members]
    for member, score in zip(members, found, strict=True):
        before = member.unscored
        _append(member, before, settled(before, score, rewards.rules), seconds, hooked=False)
    return found


async def run_hook(members: Sequence[Member], hook: GroupHook) -> None:
    """Logs what the recipe's group hook makes of the group. It sees no scores of an earlier
    hook."""
    began = time.monotonic()
    rewarded = [member.rewarded for member in members]
    seen = [with_texts(b, m.log.state) for b, m in zip(rewarded, members, strict=True)]
    found = await hook.scores(seen)
    seconds = time.monotonic() - began
    for member, before, score in zip(members, rewarded, found, strict=True):
        if score is not None:
            _append(member, before, scored(before, score), seconds, hooked=True)


def _append(
    member: Member, before: Trajectory, after: Trajectory, seconds: float, *, hooked: bool
) -> None:
    """Logs the change by scoring as an event. Notes of the reward stay before the hook's."""
    rewarded = member.log.state.rewarded if hooked else None
    earlier = len(before.events) - (len(rewarded.notes) if rewarded else 0)
    member.log.append(
        Scored(
            reward=after.reward,
            hooked=hooked,
            parts=tuple(after.reward_parts),
            masked=after.masked,
            outside_baseline=after.outside_baseline,
            anchors=dict(after.anchors),
            weights=after.weights,
            notes=tuple(after.events[earlier:]),
            seconds=seconds + (rewarded.seconds if rewarded else 0.0),
        )
    )
