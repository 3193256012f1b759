"""One group: its members roll out side by side, are scored as they end, and complete the group.

Invariants
- A member's place is free as soon as its log has ended; scoring holds no place.
- Members that an earlier life finished or scored are not done again; members that it began go on.
- The group is whole when all members are scored and the group hook has run.
- All members, in all lives of the engine, belong to the iteration in which the group began.
- If trajectories branch, members that are not starters wait for a branch (`branching/budget.py`).
  The group keeps its size.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from typing import Any

import structlog
from msgspec import structs

from engine.core.branching.budget import BranchBudget
from engine.core.rewards.hook import GroupHook
from engine.core.rewards.rewards import Rewards
from engine.core.rewards.score import Score
from engine.core.rewards.settle import scored, settled
from engine.core.rollout.assignment import Assignment, PromptCache, RolloutContext
from engine.core.rollout.attempts import roll_out
from engine.core.tasks import DrawnTask
from engine.core.trajectory.events import Scored
from engine.core.trajectory.log import AttemptLog, Keeper
from engine.core.trajectory.record import Identity, is_orphan, record, with_texts
from engine.errors import TaskUnfit, first_of_group
from engine.serving.admission.places import Places
from toolwright.process.backoff import Backoff
from toolwright.recipe import Branching
from toolwright.text.filling import filled_texts
from toolwright.types import SamplingParams, Trajectory

BACKOFF = Backoff(1.0, 30.0, jitter=False)
"""Pauses before a group is rolled out again after infrastructure failed all its members."""

log = structlog.get_logger("group")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """The parts that all groups of a lane share."""

    rollout_context: RolloutContext
    rewards: Rewards
    hook: GroupHook | None
    places: Places
    life: str
    """Begins the names of attempts; differs in each life of the engine."""
    patience: float
    """Longest time to retry an attempt, in seconds."""
    keeper: Keeper
    forget: Callable[[str], None]
    stored: Callable[[str], Awaitable[bytes | None]]
    branching: Branching | None = None
    """Set if trajectories may branch, by draws of `seed`."""
    seed: int = 0
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Replaces keys of each task's metadata."""


@dataclass(frozen=True, kw_only=True)
class Member:
    """A trajectory whose log has ended."""

    log: AttemptLog
    identity: Identity

    @classmethod
    def of(
        cls, assignment: Assignment, log: AttemptLog, number: int, context: RolloutContext
    ) -> Member:
        """The member of a finished attempt. number: number of the attempt, from 0."""
        mark = context.rules.codec.image_mark
        identity = Identity(
            trajectory_id=assignment.trajectory_id,
            group_id=assignment.group_id,
            index=assignment.index,
            attempt=number,
            task=assignment.task,
            tokenizer_hash=context.tokenizer_hash,
            placeholder=mark.placeholder if mark else None,
        )
        return cls(log=log, identity=identity)

    @property
    def trajectory(self) -> Trajectory:
        return record(self.log.state, self.identity)

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


class GroupRun:
    """The rollouts of one task. Call `run` once. `earlier`: logs of an earlier life, by
    trajectory."""

    def __init__(
        self,
        lane: Lane,
        *,
        group_id: str,
        drawn: DrawnTask,
        sampling: SamplingParams,
        size: int,
        earlier: dict[str, AttemptLog],
        drained: asyncio.Event,
        iteration: str = "",
    ) -> None:
        """iteration: RUN.STEP of the weights at admission. If a log of an earlier life names
        another iteration, that one wins, because the group began in it."""
        self._lane = lane
        self._group_id = group_id
        self.queued = asyncio.Event()
        """Set when all members are done, have a place or wait for one."""
        self._sampling = sampling
        self._size = size
        self._earlier = earlier
        logs = (earlier.get(self._id_of(index)) for index in range(size))
        begun = (one.state.iteration for one in logs if one is not None)
        self._iteration = next(filter(None, begun), iteration)
        self.drawn = _laid_over(drawn, lane.metadata, self._iteration)
        self._drained = drained
        self._prompts = PromptCache()

    async def run(self) -> list[Member]:
        """The scored members in order. While infrastructure fails all of them they are rolled out
        again, after growing pauses. The list is empty if the engine drains meanwhile. Raises
        TaskUnfit."""
        try:
            return await self._rounds()
        finally:
            self.queued.set()

    async def _rounds(self) -> list[Member]:
        for round_ in count():
            members = await self._roll_out(round_)
            if any(
                not member.log.state.ended.error for member in members if member.log.state.ended
            ):
                await self._finish(members)
                return members
            pause = BACKOFF.pause(round_)
            ended = members[0].log.state.ended
            why = ended.error if ended else ""
            log.error("group_failed", group=self._group_id, again_in_s=pause, error=why)
            for member in members:
                self._lane.forget(member.log.attempt)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._drained.wait()
            if self._drained.is_set():
                break
        return []

    async def _roll_out(self, round_: int) -> list[Member]:
        starters = self._starters()
        branches = self._branches(len(starters))
        with first_of_group(TaskUnfit):
            async with asyncio.TaskGroup() as group:
                # Starters find their places first: the others wait for their branches.
                order = sorted(range(self._size), key=lambda index: index not in starters)
                tasks = {
                    index: group.create_task(
                        self._member(index, round_, branches, waits=index not in starters)
                    )
                    for index in order
                }
                await asyncio.sleep(0)  # each of them takes its first step
                self.queued.set()
        return mark_orphans([tasks[index].result() for index in range(self._size)])

    def _starters(self) -> set[int]:
        """Members that begin at the prompt, or continue an earlier life's rollout."""
        branching, size = self._lane.branching, self._size
        first = size if branching is None else branching.starters(size)
        begun = {index for index in range(size) if self._id_of(index) in self._earlier}
        return begun | set(range(first))

    def _branches(self, starters: int) -> BranchBudget | None:
        lane = self._lane
        if lane.branching is None:
            return None
        return BranchBudget(lane.branching, seed=lane.seed, starters=starters, size=self._size)

    def _id_of(self, index: int) -> str:
        return f"{self._group_id}-{index}"

    async def _member(
        self, index: int, round_: int, branches: BranchBudget | None, *, waits: bool
    ) -> Member:
        lane, trajectory_id = self._lane, self._id_of(index)
        assignment = Assignment(
            trajectory_id=trajectory_id,
            group_id=self._group_id,
            index=index,
            task=self.drawn.task,
            sampling=self._sampling,
            media=self.drawn.media,
            stored=self._lane.stored,
            prompts=self._prompts,
            branches=branches,
            iteration=self._iteration,
        )
        earlier = self._earlier.pop(trajectory_id, None)
        number = 0
        if earlier is not None and earlier.state.ended is not None:
            attempt = earlier
        else:
            name = f"{lane.life}r{round_}a"
            async with lane.places:
                branch = None
                if waits and branches is not None:
                    branch = await branches.wait(f"{trajectory_id}/{name}0")
                attempt, number = await roll_out(
                    lane.rollout_context,
                    assignment,
                    name=name,
                    patience=lane.patience,
                    keeper=lane.keeper,
                    forget=lane.forget,
                    earlier=earlier,
                    branch=branch,
                )
        if branches is not None:
            branches.ended()
        member = Member.of(assignment, attempt, number, lane.rollout_context)
        if not lane.rewards.per_group:
            await score_member(member, lane.rewards)
        return member

    async def _finish(self, members: Sequence[Member]) -> None:
        """Scores that need the whole group, then the hook. An earlier life may have come as far:
        both run anew, not on top of its results."""
        lane = self._lane
        if lane.rewards.per_group:
            living = [member for member in members if not member.failure]
            began = time.monotonic()
            seen = [with_texts(member.unscored, member.log.state) for member in living]
            scores = await lane.rewards.score_group(seen)
            seconds = time.monotonic() - began
            given = dict(zip((m.identity.trajectory_id for m in living), scores, strict=True))
            for member in members:
                log_score(member, given.get(member.identity.trajectory_id), lane.rewards, seconds)
        if lane.hook is not None:
            began = time.monotonic()
            rewarded = [member.rewarded for member in members]
            seen = [with_texts(b, m.log.state) for b, m in zip(rewarded, members, strict=True)]
            found = await lane.hook.scores(seen)
            seconds = time.monotonic() - began
            for member, before, score in zip(members, rewarded, found, strict=True):
                if score is not None:
                    _append(member, before, scored(before, score), seconds, hooked=True)


def _laid_over(drawn: DrawnTask, metadata: Mapping[str, Any], iteration: str) -> DrawnTask:
    """The task with the recipe's metadata over its own."""
    if not metadata:
        return drawn
    laid = filled_texts(metadata, {"iteration": iteration})
    return replace(drawn, task=replace(drawn.task, metadata={**drawn.task.metadata, **laid}))


def mark_orphans(members: list[Member]) -> list[Member]:
    """The members. Those whose parent's attempt was given up after they had branched are marked."""
    attempts = [member.log.attempt for member in members]
    return [
        replace(member, identity=replace(member.identity, orphan=True))
        if is_orphan(member.log.state, attempts)
        else member
        for member in members
    ]


async def score_member(member: Member, rewards: Rewards) -> None:
    """Scores a trajectory whose reward function sees it alone, unless it has its score."""
    if member.log.state.rewarded is not None:
        return
    if member.failure:
        log_score(member, None, rewards, 0.0)
        return
    began = time.monotonic()
    score = await rewards.score_one(with_texts(member.unscored, member.log.state))
    log_score(member, score, rewards, time.monotonic() - began)


def log_score(member: Member, score: Score | None, rewards: Rewards, seconds: float) -> None:
    """Logs the score, and the effect of the recipe's rules on how the trajectory ended."""
    before = member.unscored
    _append(member, before, settled(before, score, rewards.rules), seconds, hooked=False)


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
            notes=tuple(after.events[earlier:]),
            seconds=seconds + (rewarded.seconds if rewarded else 0.0),
        )
    )
