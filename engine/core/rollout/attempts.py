"""Attempts at one trajectory: a further one where infrastructure ended the last, and a log that
says why where infrastructure ended all of them.

A failure costs patience, not a count of tries: services come back after minutes, and a trajectory
that was given up is masked for good. An attempt is made again at once, then after growing pauses,
for `patience` seconds since the first failure and at least `LEAST_ATTEMPTS` times.

A session that fails to open for all that time, on a service that opens others, is its task's fault:
a tool's `open` that raises for one row would be tried for ever.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from itertools import count

import structlog

from engine.core.branching.budget import Branch
from engine.core.rollout.assignment import Assignment, Surroundings
from engine.core.rollout.loop import Rollout
from engine.core.trajectory.events import Ended
from engine.core.trajectory.log import AttemptLog, Keeper
from engine.core.trajectory.state import LogError
from engine.errors import AttemptFailed, OpenFailed, TaskUnfit
from toolwright.process.backoff import Backoff

LEAST_ATTEMPTS = 3
BACKOFF = Backoff(0.5, 30.0)
"""Between attempts. The longest pause is what a restarted service may be waited for in vain."""

log = structlog.get_logger("attempts")


def pause_before(number: int) -> float:
    """Seconds before attempt `number`, from 0: none before the second, then doubling."""
    return BACKOFF.pause(number - 2) if number >= 2 else 0.0


async def roll_out(
    surroundings: Surroundings,
    assignment: Assignment,
    *,
    name: str,
    patience: float,
    keeper: Keeper,
    forget: Callable[[str], None],
    earlier: AttemptLog | None = None,
    branch: Branch | None = None,
) -> tuple[AttemptLog, int]:
    """The log of the attempt that came to an end, and its number from 0.

    name: of attempts, another in each life of the engine. earlier: an attempt of an earlier life,
    gone on with first. branch: what the trajectory begins as. forget: is told of every attempt that
    is given up. TaskUnfit where no attempt can be made.
    """
    began = time.monotonic()
    tools = surroundings.tools
    opened_before = {name: tools.opened(name) for name in tools.names}
    for number in count():
        attempt = branch.log if branch is not None else earlier
        if attempt is None:
            attempt = AttemptLog(f"{assignment.trajectory_id}/{name}{number}", keeper)
        try:
            if attempt.state.ended is None:
                await Rollout(surroundings, assignment, attempt, branch).run()
        except (AttemptFailed, LogError) as error:
            failure = error if isinstance(error, AttemptFailed) else AttemptFailed(str(error))
        else:
            return attempt, number
        surroundings.failures[failure.stop_reason.name.lower()] += 1
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
            return _given_up(assignment, f"{name}{number + 1}", keeper, failure), number
        await asyncio.sleep(pause_before(number + 1))
    raise AssertionError("count() ended")


def _given_up(
    assignment: Assignment, name: str, keeper: Keeper, failure: AttemptFailed
) -> AttemptLog:
    """A log that says why nothing came of the trajectory."""
    attempt = AttemptLog(f"{assignment.trajectory_id}/{name}", keeper)
    attempt.append(Ended(reason=failure.stop_reason, error=str(failure) or "infrastructure failed"))
    return attempt
