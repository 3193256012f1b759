"""The crew inside the engine's own process: groups, and rows of evaluations.

Invariants of a group, whose members roll out side by side and are scored as they end
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
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import count
from typing import Any

import structlog

from engine.core.branching.budget import Branch, BranchBudget
from engine.core.rewards.hook import GroupHook
from engine.core.rewards.rewards import Rewards
from engine.core.rollout.assignment import (
    Assignment,
    PromptCache,
    RolloutContext,
    nothing_stored,
)
from engine.core.rollout.attempts import roll_out
from engine.core.sampler.policy_sampler import PolicySampler
from engine.core.trajectory.log import AttemptLog, Keeper, keep_nothing
from engine.core.trajectory.record import Identity
from engine.errors import Fenced, GivenBack, TaskUnfit, first_of_group
from engine.serving.admission.places import Places
from engine.serving.crew.crew import GroupAssignment
from engine.serving.crew.member import Member, mark_orphans, run_hook, score_members
from engine.serving.telemetry.event_feed import Happened, unheard
from toolwright.process.backoff import Backoff
from toolwright.recipe import Branching, Limits
from toolwright.types import SamplingParams, WeightVersion

BACKOFF = Backoff(1.0, 30.0, jitter=False)
"""Pauses before a group is rolled out again after infrastructure failed all its members."""

MOST_TRIES = 3
"""Tries of a row in which other weights wrote: a server with old weights is noticed soon."""
SCORE_PAUSES = (1.0, 5.0)
"""Seconds before a row's failed reward function is called again: it may depend on a service."""

log = structlog.get_logger("group")
log_of_rows = structlog.get_logger("evaluation")


def merged_sampling(recipe: SamplingParams, task: SamplingParams | None) -> SamplingParams:
    """The recipe's parameters, replaced by those that the task names."""
    if task is None:
        return recipe
    named = {k: v for k, v in asdict(task).items() if v is not None}
    return replace(recipe, **named)


def forget_nothing(_attempt: str) -> None:
    """For attempts that are not kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InProcessCrew:
    """A `Crew` for one task of the recipe. Without a keeper no log survives the process."""

    rollout_context: RolloutContext
    rewards: Rewards
    places: Places
    """Places of the members of groups. Rows of evaluations take none."""
    life: str
    """Begins the names of attempts; differs in each life of the engine."""
    patience: float
    """Longest time to retry an attempt, in seconds."""
    members_pool: PolicySampler | None = None
    """Sampler of groups; None = the rollout context's. Rows of evaluations use that one always."""
    hook: GroupHook | None = None
    keeper: Keeper = keep_nothing
    forget: Callable[[str], None] = forget_nothing
    stored: Callable[[str], Awaitable[bytes | None]] = nothing_stored
    branching: Branching | None = None
    """Set if trajectories may branch, by draws of `seed`."""
    seed: int = 0
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Replaces keys of the metadata of each group's task."""
    happened: Happened = unheard
    fence: int = 0
    """Fence of all its assignments; see `Assignment.fence`."""

    def of_suite(self, limits: Limits) -> InProcessCrew:
        """The crew of an evaluation suite, which has its own limits. It keeps no log."""
        around = self.rollout_context
        around = replace(around, rules=replace(around.rules, limits=limits))
        return replace(
            self,
            rollout_context=around,
            members_pool=None,
            keeper=keep_nothing,
            forget=forget_nothing,
        )

    async def run_group(self, group: GroupAssignment) -> list[Member]:
        try:
            return await _GroupRun(self, group).rounds()
        finally:
            group.queued.set()

    async def run_row(
        self, row: Assignment, *, number: int, version: WeightVersion, sampled: Callable[[], None]
    ) -> tuple[Member, str]:
        sampling = merged_sampling(row.sampling, row.task.sampling)
        row = replace(row, sampling=sampling, fence=self.fence)
        why = ""
        for attempt in range(MOST_TRIES):
            member = await self.roll_out(row, f"{self.life}p{number}t{attempt}a")
            if member.failure:
                return member, member.failure
            foreign = [str(v) for v in member.trajectory.weight_versions if v != version]
            if not foreign:
                break
            why = f"written by {', '.join(foreign)}"
            log_of_rows.warning("evaluation_row_again", row=row.trajectory_id, why=why)
        else:
            return member, why
        sampled()
        (score,) = await score_members([member], self.rewards, pauses=SCORE_PAUSES)
        if score is not None and score.failed:
            return member, f"the reward function {score.events[0].data['error']}"
        return member, ""

    async def roll_out(
        self,
        assignment: Assignment,
        name: str,
        *,
        earlier: AttemptLog | None = None,
        branch: Branch | None = None,
    ) -> Member:
        """The member of the attempt that reached its end. name: begins its attempts' names."""
        context = self.rollout_context
        if self.members_pool is not None:
            context = replace(context, pool=self.members_pool)
        attempt, number = await roll_out(
            context,
            assignment,
            name=name,
            patience=self.patience,
            keeper=self.keeper,
            forget=self.forget,
            earlier=earlier,
            branch=branch,
        )
        mark = self.rollout_context.rules.codec.image_mark
        identity = Identity(
            trajectory_id=assignment.trajectory_id,
            group_id=assignment.group_id,
            index=assignment.index,
            attempt=number,
            task=assignment.task,
            tokenizer_hash=self.rollout_context.tokenizer_hash,
            placeholder=mark.placeholder if mark else None,
        )
        return Member(log=attempt, identity=identity)


class _GroupRun:
    """One group; call `rounds` once."""

    def __init__(self, crew: InProcessCrew, group: GroupAssignment) -> None:
        self._crew = crew
        self._group = group
        logs = (group.earlier.get(self._id_of(index)) for index in range(group.size))
        begun = (one.state.iteration for one in logs if one is not None)
        self._iteration = next(filter(None, begun), group.iteration)
        self._sampling = merged_sampling(group.sampling, group.drawn.task.sampling)
        self._task = group.drawn.with_metadata(crew.metadata, iteration=self._iteration).task
        self._prompts = PromptCache()

    async def rounds(self) -> list[Member]:
        crew, group = self._crew, self._group
        for round_ in count():
            members = await self._roll_out(round_)
            if not members:
                return []
            if not all(member.failure for member in members):
                # Both replace the results of an earlier life, if it came as far.
                if crew.rewards.per_group:
                    await score_members(members, crew.rewards)
                if crew.hook is not None:
                    await run_hook(members, crew.hook)
                return members
            pause, why = BACKOFF.pause(round_), members[0].failure
            log.error("group_failed", group=group.group_id, again_in_s=pause, error=why)
            for member in members:
                crew.forget(member.log.attempt)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await group.drained.wait()
            if group.drained.is_set():
                break
        return []

    async def _roll_out(self, round_: int) -> list[Member]:
        """The members; empty if one of them was given back."""
        branching, size = self._crew.branching, self._group.size
        # Starters begin at the prompt, or continue an earlier life's rollout.
        starters = set(range(size if branching is None else branching.starters(size)))
        starters |= {index for index in range(size) if self._id_of(index) in self._group.earlier}
        branches = None
        if branching is not None:
            branches = BranchBudget(
                branching, seed=self._crew.seed, starters=len(starters), size=size
            )
        with first_of_group(Fenced, TaskUnfit):
            async with asyncio.TaskGroup() as group:
                # Starters find their places first: the others wait for their branches.
                order = sorted(range(size), key=lambda index: index not in starters)
                tasks = {
                    index: group.create_task(
                        self._member(index, round_, branches, waits=index not in starters)
                    )
                    for index in order
                }
                await asyncio.sleep(0)  # each of them takes its first step
                self._group.queued.set()
        members = [found for task in tasks.values() if (found := task.result()) is not None]
        if len(members) < size:
            return []  # the others stay in the journal, for the engine's next life
        return mark_orphans(sorted(members, key=lambda member: member.identity.index))

    def _id_of(self, index: int) -> str:
        return f"{self._group.group_id}-{index}"

    async def _member(
        self, index: int, round_: int, branches: BranchBudget | None, *, waits: bool
    ) -> Member | None:
        """None if the member was given back."""
        crew, group, trajectory_id = self._crew, self._group, self._id_of(index)
        assignment = Assignment(
            trajectory_id=trajectory_id,
            group_id=group.group_id,
            index=index,
            task=self._task,
            sampling=self._sampling,
            media=group.drawn.media,
            stored=crew.stored,
            prompts=self._prompts,
            branches=branches,
            iteration=self._iteration,
            fence=crew.fence,
        )
        earlier = group.earlier.pop(trajectory_id, None)
        over = earlier is not None and earlier.state.ended is not None
        name = f"{crew.life}r{round_}a"
        async with contextlib.nullcontext() if over else group.places or crew.places:
            branch = None
            if waits and branches is not None:
                branch = await branches.wait(f"{trajectory_id}/{name}0")
            try:
                member = await crew.roll_out(assignment, name, earlier=earlier, branch=branch)
            except GivenBack:
                return None
        if branches is not None:
            branches.ended()
        ended = member.log.state.ended
        reason = ended.reason.name.lower() if ended is not None else ""
        crew.happened("finished", trajectory=trajectory_id, stop_reason=reason)
        if not crew.rewards.per_group and member.log.state.rewarded is None:
            await score_members([member], crew.rewards)
        return member
