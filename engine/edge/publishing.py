"""Accepts new weights: checks the version's place, waits for evaluation, moves the samplers.

A version is (lineage, step). Along a lineage steps only grow; a new lineage says where it left
its parent, or begins at step 0, which leaves the run's first version. Publishing the newest
version again is answered at once.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path

import structlog

from engine.errors import PublishFailed
from engine.journal.journal import Journal
from engine.lanes.evaluation import EvaluationLane
from engine.sampler.control import Published, WeightControl
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.rpc.errors import ServiceError
from toolwright.types import WeightVersion

log = structlog.get_logger("publish")


class Publisher:
    """The one way by which the samplers' weights change."""

    def __init__(
        self,
        *,
        journal: Journal,
        control: WeightControl,
        evaluation: EvaluationLane,
        changed: Callable[[int], Awaitable[None]],
    ) -> None:
        self._journal = journal
        self._control = control
        self._evaluation = evaluation
        self._changed = changed
        self._lock = asyncio.Lock()
        self._current: tuple[WeightVersion, Path] | None = None
        self._publishes: set[asyncio.Task[Published]] = set()
        self.publishing = False

    @property
    def started(self) -> bool:
        """The samplers are in order and have a version."""
        return self._current is not None

    @property
    def version(self) -> WeightVersion:
        """What every sampler has. ServiceError while the engine is starting."""
        return self._newest()[0]

    @property
    def path(self) -> Path:
        return self._newest()[1]

    def _newest(self) -> tuple[WeightVersion, Path]:
        if self._current is None:
            raise ServiceError(
                reasons.ERROR_REASON_BACKEND_DOWN,
                "the engine is still bringing its samplers to the newest weights",
                retry_after=0.5,
            )
        return self._current

    async def begin(self, model: Path) -> None:
        """At the engine's start: everyone at the journal's newest version, or at the policy.

        PublishFailed when a sampler does not get there.
        """
        newest = await self._journal.newest_version()
        if newest is None:
            newest = WeightVersion(lineage=uuid.uuid4().hex[:8], step=0), model
            await self._journal.set_version(*newest, parent=None)
        version, path = newest
        await self._control.put_in_order(version, path)
        self._current = newest
        await self._changed(version.step)
        self._evaluation.start(version)

    async def publish(
        self, version: WeightVersion, path: Path, parent: WeightVersion | None
    ) -> Published:
        """Moves every sampler to `version`. ServiceError says why not.

        A caller that goes away does not leave a publish half done.
        """
        task = asyncio.get_running_loop().create_task(self._publish(version, path, parent))
        self._publishes.add(task)
        task.add_done_callback(self._forget)
        return await asyncio.shield(task)

    async def stop(self) -> None:
        """Ends what is under way; no sampler stays paused."""
        for task in self._publishes:
            task.cancel()
        await asyncio.gather(*self._publishes, return_exceptions=True)

    def _forget(self, task: asyncio.Task[Published]) -> None:
        self._publishes.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.info("publish_refused", error=str(error))

    async def _publish(
        self, version: WeightVersion, path: Path, parent: WeightVersion | None
    ) -> Published:
        async with self._lock:
            if version == self.version:
                return Published(samplers=0, paused_s=0.0)
            parent = await self._check(version, path, parent)
            if not await self._evaluation.idle():
                raise ServiceError(
                    reasons.ERROR_REASON_DRAINING,
                    f"the engine is shutting down and goes on with the evaluation of "
                    f"{self.version} when it is back",
                    retry_after=1.0,
                )
            self.publishing = True
            try:
                published = await self._control.publish(version, path)
            except PublishFailed as error:
                raise ServiceError(
                    reasons.ERROR_REASON_PUBLISH_FAILED, str(error), subject=str(version)
                ) from error
            finally:
                self.publishing = False
            await self._journal.set_version(version, path, parent)
            self._current = version, path
            log.info("published", version=str(version), paused_s=round(published.paused_s, 4))
            await self._changed(version.step)
            self._evaluation.start(version)
            return published

    async def _check(
        self, version: WeightVersion, path: Path, parent: WeightVersion | None
    ) -> WeightVersion | None:
        """The parent of a new lineage, None when the lineage goes on."""
        if not await asyncio.to_thread(path.is_dir):
            raise ServiceError(
                reasons.ERROR_REASON_INVALID_REQUEST,
                f"no folder {path}",
                subject="path",
                mend="publish a Hugging Face folder that engine and samplers can read",
            )
        current = self.version
        if version.lineage == current.lineage:
            if version.step <= current.step:
                raise ServiceError(
                    reasons.ERROR_REASON_WRONG_VERSION,
                    f"{version} is not newer than {current}",
                    subject=str(version),
                    mend="a resume from an older checkpoint opens a new lineage",
                )
            return None
        root, known = await self._lineages()
        if version.lineage in known:
            raise ServiceError(
                reasons.ERROR_REASON_WRONG_LINEAGE,
                f"lineage {version.lineage} was left for {current.lineage}",
                subject=version.lineage,
                mend="a resume from an older checkpoint opens a new lineage",
            )
        if parent is not None:
            if parent.lineage not in known:
                raise ServiceError(
                    reasons.ERROR_REASON_WRONG_LINEAGE,
                    f"{version} names {parent} as its parent, which was never published here",
                    subject=parent.lineage,
                    mend="use the run.folder that the checkpoint belongs to, or a new one",
                )
            return parent
        if version.step == 0:
            counts = self._journal.counts
            if counts.durable_sequence > 0:
                raise ServiceError(
                    reasons.ERROR_REASON_WRONG_LINEAGE,
                    f"groups up to {counts.durable_sequence} are acknowledged and gone, but the "
                    "learner begins anew",
                    subject=version.lineage,
                    mend="restore the learner's checkpoint or use a new run.folder",
                )
            return WeightVersion(lineage=root, step=0)
        raise ServiceError(
            reasons.ERROR_REASON_WRONG_LINEAGE,
            f"{version} opens a lineage and names no parent; current is {current}",
            subject=version.lineage,
        )

    async def _lineages(self) -> tuple[str, set[str]]:
        """(the run's first lineage, all of them)."""
        forks = await self._journal.forks()
        root = self.version.lineage
        while root in forks:
            root = forks[root].lineage
        return root, {root, *forks}
