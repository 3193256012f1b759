"""Tasks that clients submit: checked, journaled, and handed to the train lane in their order.

Invariants
- A submission is on disk before its answer goes out. It is stored whole or not at all.
- The same task again changes nothing; another task under a known id is refused.
- Submitting never waits for a rollout. At most `MOST_WAITING` tasks of a name wait for admission.
- A position has the same task after a restart.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from engine.core.tasks import DrawnTask, SourceIdentity
from engine.core.tasks.rows import as_read
from engine.serving.journal.journal import Journal, SubmittedTask
from engine.serving.telemetry.event_feed import Happened, unheard
from toolwright import wire
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.common.v1 import trajectory_pb2
from toolwright.reading.task_rows.refusal import RowRefused
from toolwright.recipe import SUBMITTED, task_key
from toolwright.rpc.errors import ServiceError

MOST_TASKS = 4_096
"""Tasks in one request."""
MOST_WAITING = 65_536
"""Tasks of one name that wait for admission."""
LONGEST_ID = 1_024
"""Characters of a task's id."""
_IN_RANGE: Mapping[str, Callable[[float], bool]] = {
    "temperature": lambda value: 0 <= value < math.inf,
    "top_p": lambda value: 0 < value <= 1,
    "top_k": lambda value: value == -1 or value >= 1,
    "min_p": lambda value: 0 <= value <= 1,
    "repetition_penalty": lambda value: 0 < value <= 2,
    "seed": lambda value: 0 <= value < 1 << 63,
    "max_new_tokens": lambda value: value >= 1,
    "adapter": lambda _value: False,  # the run's own
}
"""Sampling parameters that samplers take. They refuse others, and a refused group never ends."""
RETRY_S = 5.0
"""Time after which a request that found no room may be repeated, in seconds."""


class SubmittedTasks:
    """The source of one task of the recipe with `source = "submitted"`."""

    rows: int | None = None
    """The source has no end."""

    def __init__(self, journal: Callable[[], Journal], name: str) -> None:
        """journal: gives the run's journal once it is open. name: of the task in [tasks]."""
        self._journal = journal
        self._name = name
        self._next = 0
        self.on_arrival: Callable[[], None] = lambda: None
        """Called when tasks have arrived."""

    @property
    def identity(self) -> SourceIdentity:
        return SourceIdentity(name=SUBMITTED, sha256="", seed=0, shuffle=False)

    @property
    def waiting(self) -> int:
        """Number of tasks that were not admitted yet."""
        return max(0, self._count - self._next)

    @property
    def _count(self) -> int:
        return self._journal().submitted.get(self._name, 0)

    def resume(self, position: int) -> None:
        """Continues from the journal: all positions before this one are finished."""
        self._next = position

    def has(self, position: int) -> bool:
        """Whether the position has a task."""
        return position < self._count

    async def at(self, position: int) -> DrawnTask:
        """The task of a position that has one."""
        data = await self._journal().submitted_task(self._name, position)
        self._next = max(self._next, position + 1)
        task = wire.task_from_proto(trajectory_pb2.Task.FromString(data))
        return DrawnTask(position=position, task=task, where=f"submitted task {task.id!r}")


class Submissions:
    """Takes tasks of clients. sources: of all tasks of the recipe, by their names. Only those that
    are SubmittedTasks take some."""

    def __init__(
        self,
        journal: Journal,
        sources: Mapping[str, object],
        *,
        happened: Happened = unheard,
    ) -> None:
        self._journal = journal
        self._sources = sources
        self._happened = happened

    @property
    def waiting(self) -> int:
        """Number of tasks that were not admitted yet."""
        own = (source for source in self._sources.values() if isinstance(source, SubmittedTasks))
        return sum(source.waiting for source in own)

    async def submit(self, tasks: Sequence[trajectory_pb2.Task]) -> int:
        """Stores tasks; returns how many of them are new. Raises ServiceError, and then none of
        them is stored."""
        if len(tasks) > MOST_TASKS:
            raise _refused(f"{len(tasks)} tasks at once, the limit is {MOST_TASKS}", "tasks")
        sources = [self._source(name) for name in dict.fromkeys(task.name for task in tasks)]
        if any(source.waiting + len(tasks) > MOST_WAITING for source in sources):
            raise ServiceError(
                reasons.ERROR_REASON_QUEUE_LIMIT,
                f"{self.waiting} tasks wait for admission, the limit is {MOST_WAITING}",
                subject="tasks",
                fix="submit them again later",
                retry_after=RETRY_S,
            )
        # In a thread: a request may hold megabytes.
        new = await self._journal.submit(await asyncio.to_thread(_checked, tasks))
        self._happened("submitted", tasks=new)
        for source in sources:
            source.on_arrival()
        return new

    def _source(self, name: str) -> SubmittedTasks:
        """Raises ServiceError for a task that nothing can be submitted to."""
        if name not in self._sources:
            known = ", ".join(filter(None, self._sources)) or "no named tasks"
            raise _refused(f"the recipe has no task {name!r}, it has {known}", "name")
        source = self._sources[name]
        if not isinstance(source, SubmittedTasks):
            key = f"{task_key(name)}.source"
            raise _refused(
                f"the tasks come from {key}", key, fix=f'set {key} = "{SUBMITTED}" in a new run'
            )
        return source


def _checked(tasks: Iterable[trajectory_pb2.Task]) -> list[SubmittedTask]:
    """The tasks as they are stored. Raises ServiceError for one that cannot be used."""
    return [_checked_task(task) for task in tasks]


def _checked_task(message: trajectory_pb2.Task) -> SubmittedTask:
    shown = message.id[:100]
    if not 0 < len(message.id) <= LONGEST_ID:
        raise _refused(f"a task's id has 1 to {LONGEST_ID} characters", "id")
    if message.purpose == trajectory_pb2.PURPOSE_EVAL:
        raise _refused(
            f"task {shown!r} is for evaluation",
            shown,
            fix="name it in [[engine.evaluation.suites]]",
        )
    if message.media:
        raise _refused(f"task {shown!r} has media, and a submitted task cannot", shown)
    if not message.prompt and not message.messages.values and not message.messages_json:
        raise _refused(f"task {shown!r} has neither a prompt nor messages", shown)
    message.purpose = trajectory_pb2.PURPOSE_TRAIN
    try:
        task = as_read(wire.task_from_proto(message))
    except (RowRefused, ValueError, TypeError, RecursionError) as error:
        raise _refused(f"task {shown!r} cannot be used: {error}", shown) from error
    for name, allowed in _IN_RANGE.items():
        value = None if task.sampling is None else getattr(task.sampling, name)
        if value is not None and not allowed(value):
            raise _refused(f"task {shown!r}: sampling.{name} = {value!r} cannot be sampled", shown)
    task = replace(task, name=message.name)
    data = wire.task_to_proto(task).SerializeToString(deterministic=True)
    return SubmittedTask(id=task.id, name=task.name, data=data)


def _refused(message: str, subject: str, fix: str = "") -> ServiceError:
    return ServiceError(reasons.ERROR_REASON_INVALID_REQUEST, message, subject=subject, fix=fix)
