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
from engine.evaluation import EvaluationLane
from engine.journal import Journal
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
        self.publishing = False

    @property
    def version(self) -> WeightVersion:
        if self._control.version is None:
            raise AssertionError("begin comes first")
        return self._control.version

    @property
    def path(self) -> Path:
        if self._control.path is None:
            raise AssertionError("begin comes first")
        return self._control.path

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
        await self._changed(version.step)
        self._evaluation.start(version)

    async def publish(
        self, version: WeightVersion, path: Path, parent: WeightVersion | None
    ) -> Published:
        """Moves every sampler to `version`. ServiceError says why not."""
        async with self._lock:
            if version == self.version:
                return Published(samplers=0, paused_s=0.0)
            parent = await self._check(version, path, parent)
            await self._evaluation.idle()
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
        if parent is not None:
            return parent
        if version.step == 0:
            counts = await self._journal.counts()
            if counts.durable_sequence > 0:
                raise ServiceError(
                    reasons.ERROR_REASON_WRONG_LINEAGE,
                    f"groups up to {counts.durable_sequence} are acknowledged and gone, but the "
                    "learner begins anew",
                    subject=version.lineage,
                    mend="restore the learner's checkpoint or use a new run.folder",
                )
            return await self._root()
        raise ServiceError(
            reasons.ERROR_REASON_WRONG_LINEAGE,
            f"{version} opens a lineage and names no parent; current is {current}",
            subject=version.lineage,
        )

    async def _root(self) -> WeightVersion:
        forks = await self._journal.forks()
        lineage = self.version.lineage
        while lineage in forks:
            lineage = forks[lineage].lineage
        return WeightVersion(lineage=lineage, step=0)
