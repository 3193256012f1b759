"""Accepts new weights: checks the version's place and its folder, waits for evaluation, moves the
samplers.

Which version may follow is `versions.py`. A version that came over a group
(`broadcast_publish.py`) is served before it has a folder; PublishWeights names that later.

Invariants
- One publish at a time moves the samplers, in the order in which they were asked for.
- The same publish asked again joins the one that is under way; the newest version again is
  answered at once.
- A caller that goes away does not leave a publish half done.
- A learner that lost the run moves no sampler, even where its publish was waiting for its turn.
- The journal names a folder only after it was seen to be whole and a sampler took its version.
- No sampler hears of another policy than the one that it serves.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import structlog

from engine.core.sampler.control import Published, WeightControl
from engine.errors import PublishFailed
from engine.serving.evaluation import EvaluationLane
from engine.serving.journal.journal import Journal
from engine.serving.publish.policy_folder import BrokenFolder, check_policy_folder
from engine.serving.publish.policy_shape import PolicyShape, difference
from engine.serving.publish.versions import check_next, lineages
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
        self._naming = asyncio.Lock()
        self._version: WeightVersion | None = None
        self._folder: tuple[WeightVersion, Path] | None = None
        """The newest folder, and whose weights it has."""
        self._bare: list[WeightVersion] = []
        """Versions after that, which came over a group, oldest first."""
        self._given: WeightVersion | None = None
        self._served: PolicyShape | None = None
        self._publishes: dict[Asked, asyncio.Task[Published]] = {}
        self.publishing = False

    @property
    def started(self) -> bool:
        """The samplers are in order and have a version."""
        return self._version is not None

    @property
    def version(self) -> WeightVersion:
        """What every sampler has. ServiceError while the engine is starting."""
        if self._version is None:
            raise ServiceError(
                reasons.ERROR_REASON_BACKEND_DOWN,
                "the engine is still bringing its samplers to the newest weights",
                retry_after=0.5,
            )
        return self._version

    @property
    def newest(self) -> WeightVersion:
        """The newest version that samplers were given: `version`, unless an earlier life of the
        engine ended before the folder of a later one came."""
        version, given = self.version, self._given
        if given is not None and given.lineage == version.lineage and given.step > version.step:
            return given
        return version

    @property
    def folder(self) -> tuple[WeightVersion, Path]:
        """The newest folder, and the version of the weights in it."""
        if self._folder is None:
            raise AssertionError("an engine that serves a version began with a folder")
        return self._folder

    @property
    def shape(self) -> PolicyShape | None:
        """The policy that the samplers serve; None where the engine cannot read its folder."""
        return self._served

    async def begin(self, model: Path) -> None:
        """At the engine's start: samplers at the journal's newest version, or at the policy.

        PublishFailed when no sampler gets there, or for a published folder that is not whole.
        """
        newest = await self._journal.newest_version()
        if newest is None:
            newest = WeightVersion(lineage=uuid.uuid4().hex[:8], step=0), model
            await self._journal.set_version(*newest, parent=None)
        version, path = newest
        try:
            self._served = await asyncio.to_thread(check_policy_folder, path)
        except BrokenFolder as error:
            if path != model:  # what the samplers were started with is their own matter
                raise PublishFailed(
                    f"the run's newest weights {version} cannot be used: {error}; restore that "
                    "folder, or choose a new run.folder"
                ) from error
        await self._control.put_in_order(version, path)
        self._given = await self._journal.given()
        self._version, self._folder = version, newest
        self._changed(version.step)
        self._evaluation.of_run(await self._journal.first_lineage())
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
                    fix="let one learner publish to an engine",
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
                raise self.shutting_down(f"{version} was not published") from None
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

    def shutting_down(self, what: str) -> ServiceError:
        """The error of a publish that the engine's end cut short."""
        return ServiceError(
            reasons.ERROR_REASON_DRAINING,
            f"the engine is shutting down: {what}; ask again when it is back",
            retry_after=1.0,
        )

    @asynccontextmanager
    async def turn(self, learner: str) -> AsyncIterator[None]:
        """No other publish in the body. ServiceError for a learner that has lost the run."""
        async with self._lock:
            self._allowed(learner)
            yield

    @asynccontextmanager
    async def samplers(self, learner: str) -> AsyncIterator[None]:
        """Within a turn: the samplers' weights may change in the body. Waits for evaluation."""
        if not await self._evaluation.idle():
            raise self.shutting_down(f"the evaluation of {self.version} goes on first")
        async with self._moving:
            self._allowed(learner)
            self.publishing = True
            try:
                yield
            finally:
                self.publishing = False

    def awaits_folder(self, version: WeightVersion) -> bool:
        """The version came over a group: its folder moves no sampler."""
        return version in self._bare

    async def give(self, version: WeightVersion) -> None:
        """Before samplers are given a version that has no folder."""
        await self._journal.set_given(version)

    def came_over_a_group(self, version: WeightVersion, published: Published) -> None:
        """The samplers have `version`, whose folder follows."""
        self._bare.append(version)
        self._serve(version, published)

    async def check_version(
        self, version: WeightVersion, parent: WeightVersion | None
    ) -> WeightVersion | None:
        """See `versions.check_next`."""
        return await check_next(self._journal, self.version, version, parent)

    async def lineages(self) -> tuple[str, ...]:
        """All lineages of the run, the first one first. ServiceError while the engine starts."""
        return await lineages(self._journal, self.version)

    async def _publish(
        self, version: WeightVersion, path: Path, parent: WeightVersion | None, learner: str
    ) -> Published:
        self._allowed(learner)
        if self.awaits_folder(version):  # beside a publish that is under way
            await self._name_folder(version, path)
            return Published(samplers=0, paused_s=0.0)
        async with self.turn(learner):
            if version == self.version:
                await self._name_folder(version, path)
                return Published(samplers=0, paused_s=0.0)
            shape = await self._check_folder(path)
            parent = await self.check_version(version, parent)
            async with self.samplers(learner):
                published = await self._move(version, path, parent)
                self._served = shape
                return published

    async def _name_folder(self, version: WeightVersion, path: Path) -> None:
        async with self._naming:
            if version not in self._bare:  # asked for twice, or a later folder was quicker
                return
            shape = await self._check_folder(path)
            await self._record(version, path, None)
            self._served = shape
            self._bare = [one for one in self._bare if one.step > version.step]
            self._control.name_folder(version, path)
            log.info("folder_named", version=str(version), path=str(path))

    async def _move(
        self, version: WeightVersion, path: Path, parent: WeightVersion | None
    ) -> Published:
        try:
            published = await self._control.publish(version, path)
        except PublishFailed as error:
            raise ServiceError(
                reasons.ERROR_REASON_PUBLISH_FAILED,
                f"no sampler took version {version}, so {self.version} stays: {error}",
                subject=str(version),
            ) from error
        async with self._naming:
            await self._record(version, path, parent)
            self._bare = []
        self._serve(version, published)
        return published

    async def _record(
        self, version: WeightVersion, path: Path, parent: WeightVersion | None
    ) -> None:
        try:
            await self._journal.set_version(version, path, parent)
        except PublishFailed as error:  # asked for again it is published again
            raise ServiceError(
                reasons.ERROR_REASON_PUBLISH_FAILED, str(error), subject=str(version)
            ) from error
        self._folder = version, path

    def _serve(self, version: WeightVersion, published: Published) -> None:
        self._version = version
        log.info("published", version=str(version), paused_s=round(published.paused_s, 4))
        self._changed(version.step)
        self._evaluation.start(version)

    async def _check_folder(self, path: Path) -> PolicyShape:
        """ServiceError unless the folder is whole and holds the policy that is served."""
        try:
            shape = await asyncio.to_thread(check_policy_folder, path)
        except BrokenFolder as error:
            raise ServiceError(
                reasons.ERROR_REASON_INVALID_REQUEST,
                str(error),
                subject="path",
                fix="publish a whole Hugging Face folder that engine and samplers can read",
            ) from error
        wrong = difference(self._served, shape) if self._served is not None else None
        if wrong is not None:
            raise ServiceError(
                reasons.ERROR_REASON_INVALID_REQUEST,
                f"{path} holds another policy than the samplers serve: {wrong}",
                subject="path",
                fix="publish the policy that the run began with, trained further; another one "
                "needs a run.folder of its own",
            )
        return shape
