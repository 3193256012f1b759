"""What can end an attempt, a request or the engine: one tree.

EngineError
├── StartupError          the engine cannot start; the message names the fix.
├── TaskUnfit             the task allows no attempt; its position is skipped.
├── AttemptFailed         this attempt is over, another may follow; the policy never sees it.
│   ├── SessionLost
│   ├── ToolServiceFailed
│   │   └── OpenFailed
│   ├── ForkRefused
│   └── SamplerFailed
├── Fenced                another process has this work now; it goes on there alone.
├── RequestFailed         a running engine refused a client's request, or did not answer.
├── PublishFailed         the samplers are not all at the new version.
└── SharedSampler         another run changes the weights of a sampler of this run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from toolwright.types import StopReason


class EngineError(Exception):
    """Base of everything that the engine raises on purpose. status: the command's exit code."""

    status = 1


class StartupError(EngineError):
    """The engine cannot start. The message names the thing, the limit and the fix."""


class TaskUnfit(EngineError):
    """The task cannot be rolled out: it does not fit the recipe, or its data cannot be used. The
    run drops it, counts it and goes on (`engine.max_bad_rows`)."""


class AttemptFailed(EngineError):
    """Infrastructure ended the attempt; the trajectory starts again or is masked.

    permanent: the same request would be refused again, so no other attempt is worth making.
    """

    stop_reason = StopReason.INFRASTRUCTURE_ERROR

    def __init__(self, message: str, *, permanent: bool = False) -> None:
        super().__init__(message)
        self.permanent = permanent


class SessionLost(AttemptFailed):
    """A tool session is gone with its state."""

    stop_reason = StopReason.SESSION_LOST


class ToolServiceFailed(AttemptFailed):
    """A tool service could not run a call beyond its retries."""


class OpenFailed(ToolServiceFailed):
    """A reachable tool service failed to open the session. The fault is its own, or the task's
    data."""

    def __init__(self, message: str, *, service: str) -> None:
        """`service`: its name in the recipe."""
        super().__init__(message)
        self.service = service


class ForkRefused(AttemptFailed):
    """A trajectory cannot be forked here: a turn is in progress, or a session cannot be copied."""


class SamplerFailed(AttemptFailed):
    """No sampler finished the generation beyond the retries."""

    stop_reason = StopReason.SAMPLER_ERROR


class Fenced(EngineError):
    """A tool service has heard of a later holder of this work, which goes on there. The caller
    drops the work: it retries, scores and counts nothing."""


class RequestFailed(EngineError):
    """A running engine refused a client's request, did not answer in time, or answered wrongly."""


class GivenBack(EngineError):
    """The engine drains, and no agent has taken the attempt: its next life hands it out."""


class PublishFailed(EngineError):
    """A publish did not reach every sampler."""


class SharedSampler(EngineError):
    """Another run changes the weights of a sampler of this run. This run ends, since both would
    take the sampler from each other for ever. A supervisor must not restart an engine that exits
    with this error."""

    status = 5


@contextmanager
def first_of_group(*kinds: type[Exception]) -> Iterator[None]:
    """If the block raises a group of errors of these kinds, the first of them is raised instead of
    the group. A group that holds an error of another kind is raised unchanged.

    A TaskGroup whose child fails while it waits leaves its own cancellation with the task
    (CPython's issue 116720, fixed in 3.13). The context manager removes one cancellation: before
    Python 3.11.3 no `asyncio.timeout` of such a task would end as a timeout. A cancellation by the
    caller in the same moment is lost with or without it, because the group's errors win.
    """
    task = asyncio.current_task()
    cancelled = task.cancelling() if task is not None else 0
    try:
        yield
    except BaseExceptionGroup as group:
        if task is not None and task.cancelling() > cancelled:
            task.uncancel()
        found, other = group.split(kinds)
        if found is None or (other is not None and other.split(Exception)[1] is not None):
            raise
        while isinstance(found, BaseExceptionGroup):
            found = found.exceptions[0]  # type: ignore[assignment]
        raise found from group
