"""Attempts at one trajectory. Another attempt follows if infrastructure ended the last one. If
infrastructure ended all of them, the log says why.

The budget is time, not a number of tries: services come back after minutes, and a trajectory that
was given up is masked for good. Another attempt starts at once, then after growing pauses. This
goes on for `patience` seconds since the first failure, and for at least `LEAST_ATTEMPTS` attempts.

A session that fails to open for all that time, on a service that opens others, is its task's fault.
Otherwise a tool whose `open` raises for one row would be retried for ever.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from itertools import count

import structlog

from engine.core.branching.budget import Branch
from engine.core.rollout.assignment import Assignment, RolloutContext
from engine.core.rollout.loop import Rollout
from engine.core.trajectory.events import Ended
from engine.core.trajectory.log import AttemptLog, Keeper
from engine.core.trajectory.state import LogError
from engine.errors import AttemptFailed, OpenFailed, TaskUnfit
from toolwright.process.backoff import Backoff

LEAST_ATTEMPTS = 3
BACKOFF = Backoff(0.5, 30.0)
"""Pauses from the third attempt on. A restarted service may be awaited in vain for the longest
one."""

log = structlog.get_logger("attempts")


async def roll_out(
    rollout_context: RolloutContext,
    assignment: Assignment,
    *,
    name: str,
    patience: float,
    keeper: Keeper,
    forget: Callable[[str], None],
    earlier: AttemptLog | None = None,
    branch: Branch | None = None,
) -> tuple[AttemptLog, int]:
    """The log of the attempt that reached its end, and its number from 0.

    name: of the attempts, another in each life of the engine. patience: seconds. earlier: an
    attempt of an earlier life, which goes on first. branch: what the trajectory begins as. forget:
    called with every attempt that is given up. Raises TaskUnfit if no attempt can be made.
    """
    began = time.monotonic()
    tools = rollout_context.tools
    opened_before = {name: tools.opened(name) for name in tools.names}
    for number in count():
        attempt = branch.log if branch is not None else earlier
        if attempt is None:
            attempt = AttemptLog(f"{assignment.trajectory_id}/{name}{number}", keeper)
        try:
            if attempt.state.ended is None and rollout_context.outside is not None:
                await rollout_context.outside(rollout_context, assignment, attempt)
            elif attempt.state.ended is None:
                await Rollout(rollout_context, assignment, attempt, branch).run()
        except (AttemptFailed, LogError) as error:
            failure = error if isinstance(error, AttemptFailed) else AttemptFailed(str(error))
        else:
            return attempt, number
        rollout_context.failures[failure.stop_reason.name.lower()] += 1
        log.warning("attempt_failed", attempt=attempt.attempt, error=str(failure))
        forget(attempt.attempt)
        earlier = branch = None
        if failure.permanent:
            raise TaskUnfit(f"task {assignment.task.id}: {failure}") from failure
        waited = time.monotonic() - began
        if number + 1 >= LEAST_ATTEMPTS and waited >= patience:
            if isinstance(failure, OpenFailed):
                service = failure.service
                if tools.opened(service) > opened_before[service]:
                    raise TaskUnfit(f"task {assignment.task.id}: {failure}") from failure
            return _failed_log(assignment, f"{name}{number + 1}", keeper, failure), number
        await asyncio.sleep(BACKOFF.pause(number - 1) if number else 0.0)
    raise AssertionError("count() ended")


def _failed_log(
    assignment: Assignment, name: str, keeper: Keeper, failure: AttemptFailed
) -> AttemptLog:
    """A log that says why the trajectory failed."""
    attempt = AttemptLog(f"{assignment.trajectory_id}/{name}", keeper)
    attempt.append(Ended(reason=failure.stop_reason, error=str(failure) or "infrastructure failed"))
    return attempt
