"""Moves the samplers to new weights: one publish at a time, over whichever transport brings it.

`publish_state.py` has the states of one publish, and `versions.py` says which version may follow.
Each transport brings the weights in its own way (`transports.py`). A version that came over a group
is served before it has a folder; PublishWeights names it later.

Invariants
- One publish at a time moves the samplers, in the order of the requests.
- The same publish again joins the one in progress; the newest version again is answered at once.
- A caller that goes away does not leave a publish half done.
- A learner that lost the run moves no sampler, even if its publish was waiting for its turn.
- The journal names a folder only after a check that it is whole and after a sampler took its
  version.
- No sampler gets another policy than the one that it serves.
- While the learner has the samplers' memory, no evaluation is in progress: one that is running
  comes first, and one that is due begins when the samplers sample again.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from engine.core.sampler.control import PublishResult, WeightControl
from engine.errors import PublishFailed
from engine.serving.evaluation import EvaluationLane
from engine.serving.journal.journal import Journal
from engine.serving.publish.adapter_folder import check_adapter_folder
from engine.serving.publish.policy_folder import BrokenFolder, check_policy_folder
from engine.serving.publish.policy_shape import PolicyShape
from engine.serving.publish.publish import Publish, Transport, shutting_down
from engine.serving.publish.publish_state import Event, Stage
from engine.serving.publish.transports import FolderTransport
from engine.serving.publish.versions import ServedWeights, check_next
from engine.serving.telemetry.event_feed import Happened, unheard
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.rpc.errors import ServiceError
from toolwright.types import WeightVersion

MOST_PUBLISHES = 4
"""Most publishes by a folder in progress or waiting. A learner has one; another one is of a learner
that died and came back."""
_NOTHING_MOVED = PublishResult(samplers=0, paused_s=0.0)

log = structlog.get_logger("publish")


class Publisher:
    """The only way to change the samplers' weights."""

    def __init__(
        self,
        *,
        journal: Journal,
        control: WeightControl,
        evaluation: EvaluationLane,
        changed: Callable[[int], None],
        allowed: Callable[[str], None],
        happened: Happened = unheard,
    ) -> None:
        """allowed: raises ServiceError for a learner that does not have the run."""
        self._journal = journal
        self._control = control
        self._evaluation = evaluation
        self._changed = changed
        self._allowed = allowed
        self._happened = happened
        self._lock = asyncio.Lock()
        self._moving = asyncio.Lock()
        self._naming = asyncio.Lock()
        self._served: ServedWeights | None = None
        self._publishes: dict[Transport, Publish] = {}
        self._memory: dict[tuple[str, str], asyncio.Task[int]] = {}
        """Changes of the samplers' memory in progress, by name and learner."""
        self._evaluates_later = False
        """Whether the evaluations of the newest version wait for the samplers' memory."""

    @property
    def started(self) -> bool:
        """Whether the samplers are in order and have a version."""
        return self._served is not None

    @property
    def publishing(self) -> bool:
        """Whether a publish moves the samplers."""
        return self._moving.locked()

    @property
    def memory_released(self) -> bool:
        """Whether the learner has the samplers' memory."""
        return self._control.fleet.memory_released

    @property
    def memory_share(self) -> float:
        """Largest share of its GPU's memory that a sampler takes; 0 if it is unknown."""
        infos = (server.info for server in self._control.fleet.servers)
        return max((info.memory_share for info in infos if info is not None), default=0.0)

    @property
    def served(self) -> ServedWeights:
        """The run's weights. Raises ServiceError while the engine is starting."""
        if self._served is None:
            raise ServiceError(
                reasons.ERROR_REASON_BACKEND_DOWN,
                "the engine is still bringing its samplers to the newest weights",
                retry_after=0.5,
            )
        return self._served

    @property
    def version(self) -> WeightVersion:
        """The version that every sampler has. Raises ServiceError while the engine is starting."""
        return self.served.version

    async def begin(self, model: Path) -> None:
        """At the engine's start: brings samplers to the journal's newest version, or to the policy.

        Raises PublishFailed if every sampler fails, or for a published folder that is not whole.
        """
        newest = await self._journal.newest_version()
        if newest is None:
            newest = WeightVersion(lineage=uuid.uuid4().hex[:8], step=0), model
            await self._journal.set_version(*newest, parent=None)
        version, path = newest
        base = self._control.base or path
        shape: PolicyShape | None = None
        try:
            shape = await asyncio.to_thread(check_policy_folder, base)
            if path != base:
                await asyncio.to_thread(check_adapter_folder, path, shape)
        except BrokenFolder as error:
            if path != model:  # the samplers chose the initial weights themselves
                raise PublishFailed(
                    f"the run's newest weights {version} cannot be used: {error}; restore that "
                    "folder, or choose a new run.folder"
                ) from error
        await self._control.initialise(version, path)
        self._served = ServedWeights(
            version=version, folder=newest, shape=shape, given=await self._journal.given()
        )
        self._changed(version.step)
        self._evaluation.set_run(await self._journal.first_lineage())
        self._evaluates_later = self.memory_released
        if not self.memory_released:
            self._evaluation.start(version)

    async def publish(
        self,
        version: WeightVersion,
        path: Path,
        parent: WeightVersion | None,
        *,
        learner: str = "",
    ) -> PublishResult:
        """Moves the samplers to `version`, by a folder. Raises ServiceError with the reason if it
        cannot."""
        transport = FolderTransport(
            version=version, parent=parent, learner=learner, folder=path, control=self._control
        )
        waiting = [str(one.version) for one in self._publishes if one.folder is not None]
        if transport not in self._publishes and len(waiting) >= MOST_PUBLISHES:
            raise ServiceError(
                reasons.ERROR_REASON_WRONG_VERSION,
                f"{version} cannot wait behind {', '.join(waiting)}",
                subject=str(version),
                fix="let one learner publish to an engine",
                retry_after=1.0,
            )
        return await self.start(transport).result()

    async def release_memory(self, learner: str) -> int:
        """Gives the samplers' memory to the learner, after a running evaluation. Returns the number
        of samplers that released it."""
        return await self._change_memory("release", learner, self._release(learner))

    async def resume_memory(self, learner: str) -> int:
        """Takes the samplers' memory back, for the newest version. Returns the number of samplers
        that sample again."""
        return await self._change_memory("resume", learner, self._resume(learner))

    def start(self, transport: Transport) -> Publish:
        """Starts a publish, or joins the same one. It goes on without its caller."""
        one = self._publishes.get(transport)
        if one is None:
            one = self._publishes[transport] = Publish(transport)
            one.task = asyncio.get_running_loop().create_task(self._run(one))
            one.task.add_done_callback(partial(self._ended, one))
        return one

    async def settled(self) -> None:
        """Returns when no publish is moving the samplers: the newest version is final."""
        async with self._moving:
            return

    async def stop(self) -> None:
        """Ends publishes in progress; no sampler stays paused."""
        publishes = list(self._publishes.values())
        memory = list(self._memory.values())
        for one in publishes:
            if one.state.stage is not Stage.FAILED:  # it puts the samplers in order
                one.task.cancel()
        for task in memory:
            task.cancel()
        tasks = (*(one.task for one in publishes), *memory)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _change_memory(
        self, name: str, learner: str, change: Coroutine[Any, Any, int]
    ) -> int:
        """Runs a change to its end, also without its caller; the learner's same call joins it."""
        key = (name, learner)
        task = self._memory.get(key)
        if task is None:
            task = self._memory[key] = asyncio.get_running_loop().create_task(change)
            task.add_done_callback(lambda _task: self._memory.pop(key))
        else:
            change.close()
        return await asyncio.shield(task)

    async def _release(self, learner: str) -> int:
        async with self._lock:
            self._allowed(learner)
            version = self.version
            if not self.memory_released and not await self._evaluation.idle():
                raise shutting_down(f"the evaluation of {version} goes on first")
            async with self._moving:
                self._allowed(learner)
                return await self._control.release_memory()

    async def _resume(self, learner: str) -> int:
        async with self._lock, self._moving:
            self._allowed(learner)
            samplers = await self._control.resume_memory()
            if self._evaluates_later:
                self._evaluates_later = False
                self._evaluation.start(self.version)
            return samplers

    def _ended(self, one: Publish, task: asyncio.Task[None]) -> None:
        del self._publishes[one.transport]
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is not None:
            one.fail(error)
            log.warning(
                "publish_failed", version=str(one.transport.version), error=str(one.state.error)
            )

    async def _run(self, one: Publish) -> None:
        result = await self._publish(one)
        one.become(one.state.after(Event.SERVE, result=result))

    async def _publish(self, one: Publish) -> PublishResult:
        transport = one.transport
        version, folder = transport.version, transport.folder
        self._allowed(transport.learner)
        if folder is not None and version in self.served.without_folder:
            await self._name_folder(transport, folder)  # beside a publish in progress
            return _NOTHING_MOVED
        async with self._lock:
            self._allowed(transport.learner)
            if folder is not None and version == self.version:
                await self._name_folder(transport, folder)
                return _NOTHING_MOVED
            shape = await transport.check(self.served)
            parent = check_next(
                self.served,
                version,
                transport.parent,
                known=(await self._journal.first_lineage(), *await self._journal.forks()),
                acknowledged=self._journal.counts.durable_sequence,
            )
            if not self.memory_released and not await self._evaluation.idle():
                raise shutting_down(f"the evaluation of {self.version} goes on first")
            async with self._moving:
                self._allowed(transport.learner)
                self._evaluates_later = False
                if folder is None:
                    await self._journal.set_given(version)
                published = await transport.move(one, self.served)
                if folder is None:
                    self._served = self.served.received(version)
                else:
                    async with self._naming:
                        await self._record(version, folder, parent)
                        self._served = self.served.moved(version, folder, shape)
                news = {"version": str(version), "paused_s": round(published.paused_s, 4)}
                log.info("published", **news)
                self._happened("published", **news)
                self._changed(version.step)
                self._evaluation.start(version)
                return published

    async def _name_folder(self, transport: Transport, folder: Path) -> None:
        """Names the folder of a version that came over a group: it moves no sampler."""
        version = transport.version
        async with self._naming:
            if version not in self.served.without_folder:  # twice, or a later folder was quicker
                return
            shape = await transport.check(self.served)
            await self._record(version, folder, None)
            self._served = self.served.named(version, folder, shape)
            self._control.name_folder(version, folder)
            log.info("folder_named", version=str(version), path=str(folder))

    async def _record(
        self, version: WeightVersion, path: Path, parent: WeightVersion | None
    ) -> None:
        try:
            await self._journal.set_version(version, path, parent)
        except PublishFailed as error:  # the same request again publishes it again
            raise ServiceError(
                reasons.ERROR_REASON_PUBLISH_FAILED, str(error), subject=str(version)
            ) from error
