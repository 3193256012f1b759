"""The interface of a crew: an assignment in, a finished result out.

The caller draws rows, decides when each begins, and keeps the results. A crew rolls out, retries
what infrastructure failed, and scores. It knows no source, no journal and no results file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from engine.core.rollout.assignment import Assignment, RolloutContext
from engine.core.tasks import DrawnTask
from engine.core.trajectory.log import AttemptLog
from toolwright.recipe import Limits
from toolwright.types import SamplingParams, Trajectory, WeightVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAssignment:
    """One task that is rolled out `size` times. `drained` stops its retries."""

    group_id: str
    drawn: DrawnTask
    sampling: SamplingParams
    """The recipe's parameters; the task's own replace them."""
    size: int
    earlier: dict[str, AttemptLog] = field(default_factory=dict)
    """Logs of an earlier life, by trajectory. The crew removes those that it continues."""
    iteration: str = ""
    """RUN.STEP of the weights at admission. An iteration in a log of an earlier life replaces it,
    because the group began in that one."""
    queued: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when all members are done, have a place or wait for one."""
    drained: asyncio.Event = field(default_factory=asyncio.Event)
    places: AbstractAsyncContextManager[Any, None] | None = None
    """Places of the members; None = those of the crew."""


class Finished(Protocol):
    """A trajectory that is over and scored."""

    @property
    def attempt(self) -> str:
        """Name of the attempt that reached the end."""
        ...

    @property
    def trajectory(self) -> Trajectory: ...

    @property
    def serialized(self) -> bytes | None:
        """The record as it came from another process; None if it was made in this one."""
        ...


class Crew(Protocol):
    """Carries out assignments. All methods raise TaskUnfit for a task that cannot be rolled out."""

    async def run_group(self, group: GroupAssignment) -> Sequence[Finished]:
        """The scored members in order. While infrastructure fails all of them they are rolled out
        again, after growing pauses. The list is empty if the engine drains meanwhile."""
        ...

    async def run_row(
        self, row: Assignment, *, number: int, version: WeightVersion, sampled: Callable[[], None]
    ) -> tuple[Finished, str]:
        """The trajectory of an evaluation row, scored, and why it does not count; "" if it counts.

        number: passes over the row before this one. version: the only weights that may write it.
        sampled: called when the rollout counts and only scoring is left.
        """
        ...


class SuiteCrew(Crew, Protocol):
    """A crew that also runs the rows of evaluation suites."""

    @property
    def rollout_context(self) -> RolloutContext:
        """Rules, sampler and tools of training."""
        ...

    def of_suite(self, limits: Limits) -> Crew:
        """The crew of a suite, which has its own limits. It keeps no log."""
        ...
