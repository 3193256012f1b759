"""Accepts new weights: checks the version's place and its folder, waits for evaluation, moves the
samplers.

A version is (lineage, step). Along a lineage steps only grow; a new lineage says where it left
its parent, or begins at step 0, which leaves the run's first version.

Invariants
- One publish at a time moves the samplers, in the order in which they were asked for.
- The same publish asked again joins the one that is under way; the newest version again is
  answered at once.
- A caller that goes away does not leave a publish half done.
- A learner that lost the run moves no sampler, even where its publish was waiting for its turn.
- The journal names a folder only after it was seen to be whole and a sampler took it.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from pathlib import Path

import structlog

from engine.edge.policy_folder import BrokenFolder, check_policy_folder
from engine.errors import PublishFailed
from engine.journal.journal import Journal
from engine.lanes.evaluation import EvaluationLane
from engine.sampler.control import Published, WeightControl
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.rpc.errors import ServiceError
from toolwright.types import WeightVersion

MOST_PUBLISHES = 4
"""Under way or waiting. A learner has one; another one is of a learner that died and came back."""

log = structlog.get_logger("publish")

Asked = tuple[WeightVersion, Path, WeightVersion | None, str]
"""Version, folder, parent of a new lineage, learner: what makes two publishes the same."""


class Publisher:
    """The one way by which the samplers' weights change."""

    def __init__(
        self,
        *,
        journal: Journal,
        control: WeightControl,
        evaluation: EvaluationLane,
        changed: Callable[[int], None],
        allowed: Callable[[str], None],
    ) -> None:
        """allowed: raises ServiceError for a learner whose the run is not."""
        self._journal = journal
        self._control = control
        self._evaluation = evaluation
        self._changed = changed
        self._allowed = allowed
        self._lock = asyncio.Lock()
        self._moving = asyncio.Lock()
        self._current: tuple[WeightVersion, Path] | None = None
        self._publishes: dict[Asked, asyncio.Task[Published]] = {}
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
        """At the engine's start: samplers at the journal's newest version, or at the policy.

        PublishFailed when no sampler gets there, or for a published folder that is not whole.
        """
        newest = await self._journal.newest_version()
        if newest is None:
            newest = WeightVersion(lineage=uuid.uuid4().hex[:8], step=0), model
            await self._journal.set_version(*newest, parent=None)
        version, path = newest
        if path != model:
            try:
                await asyncio.to_thread(check_policy_folder, path)
            except BrokenFolder as error:
                raise PublishFailed(
                    f"the run's newest weights {version} cannot be used: {error}; restore that "
                    "folder, or choose a new run.folder"
                ) from error
        await self._control.put_in_order(version, path)
        self._current = newest
        self._changed(version.step)
        self._evaluation.start(version)

    async def publish(
        self,
        version: WeightVersion,
        path: Path,
        parent: WeightVersion | None,
        *,
        learner: str = "",
    ) -> Published:
        """Moves the samplers to `version`. ServiceError says why not.

        A caller that goes away leaves the publish to itself; asking again joins it.
        """
        asked: Asked = (version, path, parent, learner)
        task = self._publishes.get(asked)
        if task is None:
            if len(self._publishes) >= MOST_PUBLISHES:
                waiting = ", ".join(str(one) for one, *_ in self._publishes)
                raise ServiceError(
                    reasons.ERROR_REASON_WRONG_VERSION,
                    f"{version} cannot wait behind {waiting}",
                    subject=str(version),
                    mend="let one learner publish to an engine",
                    retry_after=1.0,
                )
            task = asyncio.get_running_loop().create_task(self._publish(*asked))
            self._publishes[asked] = task
            task.add_done_callback(lambda done: self._ended(asked, done))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if task.cancelled() and caller is not None and not caller.cancelling():
                raise self._shutting_down(f"{version} was not published") from None
            raise

    async def still(self) -> None:
        """Returns when no publish is amid the samplers: what was newest is newest."""
        async with self._moving:
            return

    async def stop(self) -> None:
        """Ends what is under way; no sampler stays paused."""
        publishes = list(self._publishes.values())
        for task in publishes:
            task.cancel()
        await asyncio.gather(*publishes, return_exceptions=True)

    def _ended(self, asked: Asked, task: asyncio.Task[Published]) -> None:
        del self._publishes[asked]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("publish_refused", version=str(asked[0]), error=str(error))

    def _shutting_down(self, what: str) -> ServiceError:
        return ServiceError(
            reasons.ERROR_REASON_DRAINING,
            f"the engine is shutting down: {what}; ask again when it is back",
            retry_after=1.0,
        )

    async def _publish(
        self, version: WeightVersion, path: Path, parent: WeightVersion | None, learner: str
    ) -> Published:
        async with self._lock:
            self._allowed(learner)
            if version == self.version:
                return Published(samplers=0, paused_s=0.0)
            parent = await self._check(version, path, parent)
            if not await self._evaluation.idle():
                raise self._shutting_down(f"the evaluation of {self.version} goes on first")
            async with self._moving:
                self._allowed(learner)
                return await self._move(version, path, parent)

    async def _move(
        self, version: WeightVersion, path: Path, parent: WeightVersion | None
    ) -> Published:
        self.publishing = True
        try:
            published = await self._control.publish(version, path)
        except PublishFailed as error:
            raise ServiceError(
                reasons.ERROR_REASON_PUBLISH_FAILED,
                f"no sampler took version {version}, so {self.version} stays: {error}",
                subject=str(version),
            ) from error
        finally:
            self.publishing = False
        try:
            await self._journal.set_version(version, path, parent)
        except PublishFailed as error:  # asked for again it is published again
            raise ServiceError(
                reasons.ERROR_REASON_PUBLISH_FAILED, str(error), subject=str(version)
            ) from error
        self._current = version, path
        log.info("published", version=str(version), paused_s=round(published.paused_s, 4))
        self._changed(version.step)
        self._evaluation.start(version)
        return published

    async def _check(
        self, version: WeightVersion, path: Path, parent: WeightVersion | None
    ) -> WeightVersion | None:
        """The parent of a new lineage, None when the lineage goes on."""
        try:
            await asyncio.to_thread(check_policy_folder, path)
        except BrokenFolder as error:
            raise ServiceError(
                reasons.ERROR_REASON_INVALID_REQUEST,
                str(error),
                subject="path",
                mend="publish a whole Hugging Face folder that engine and samplers can read",
            ) from error
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
        root, *others = await self.lineages()
        known = {root, *others}
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

    async def lineages(self) -> tuple[str, ...]:
        """All lineages of the run, the first one first. ServiceError while the engine starts."""
        forks = await self._journal.forks()
        root = self.version.lineage
        while root in forks:
            root = forks[root].lineage
        return root, *forks
