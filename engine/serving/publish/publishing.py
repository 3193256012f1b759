"""Accepts new weights: checks the version's place and its folder, waits for evaluation, moves the
samplers.

`versions.py` decides which version may follow. A version that came over a group
(`broadcast_publish.py`) is served before it has a folder; PublishWeights names the folder later.

Invariants
- One publish at a time moves the samplers, in the order of the requests.
- The same publish again joins the one in progress; the newest version again is answered at once.
- A caller that goes away does not leave a publish half done.
- A learner that lost the run moves no sampler, even if its publish was waiting for its turn.
- The journal names a folder only after a check that it is whole and after a sampler took its
  version.
- No sampler gets another policy than the one that it serves.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import structlog

from engine.core.sampler.control import PublishResult, WeightControl
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
"""Most publishes in progress or waiting. A learner has one; another one is of a learner that died
and came back."""

log = structlog.get_logger("publish")

PublishKey = tuple[WeightVersion, Path, WeightVersion | None, str]
"""Version, folder, parent of a new lineage, learner: equal keys mean the same publish."""


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
    ) -> None:
        """allowed: raises ServiceError for a learner that does not have the run."""
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
        """The newest folder, and the version of its weights."""
        self._bare: list[WeightVersion] = []
        """Later versions, which came over a group, oldest first."""
        self._given: WeightVersion | None = None
        self._served: PolicyShape | None = None
        self._publishes: dict[PublishKey, asyncio.Task[PublishResult]] = {}
        self.publishing = False

    @property
    def started(self) -> bool:
        """Whether the samplers are in order and have a version."""
        return self._version is not None

    @property
    def version(self) -> WeightVersion:
        """The version that every sampler has. Raises ServiceError while the engine is starting."""
        if self._version is None:
            raise ServiceError(
                reasons.ERROR_REASON_BACKEND_DOWN,
                "the engine is still bringing its samplers to the newest weights",
                retry_after=0.5,
            )
        return self._version

    @property
    def newest(self) -> WeightVersion:
        """The newest version that samplers got. It is `version`, unless an earlier life of the
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
        """The policy that the samplers serve; None if the engine cannot read its folder."""
        return self._served

    async def begin(self, model: Path) -> None:
        """At the engine's start: brings samplers to the journal's newest version, or to the policy.

        Raises PublishFailed if every sampler fails, or for a published folder that is not whole.
        """
        newest = await self._journal.newest_version()
        if newest is None:
            newest = WeightVersion(lineage=uuid.uuid4().hex[:8], step=0), model
            await self._journal.set_version(*newest, parent=None)
        version, path = newest
        try:
            self._served = await asyncio.to_thread(check_policy_folder, path)
        except BrokenFolder as error:
            if path != model:  # the samplers chose the initial weights themselves
                raise PublishFailed(
                    f"the run's newest weights {version} cannot be used: {error}; restore that "
                    "folder, or choose a new run.folder"
                ) from error
        await self._control.initialise(version, path)
        self._given = await self._journal.given()
        self._version, self._folder = version, newest
        self._changed(version.step)
        self._evaluation.set_run(await self._journal.first_lineage())
        self._evaluation.start(version)

    async def publish(
        self,
        version: WeightVersion,
        path: Path,
        parent: WeightVersion | None,
        *,
        learner: str = "",
    ) -> PublishResult:
        """Moves the samplers to `version`. Raises ServiceError with the reason if it cannot.

        A caller that goes away does not stop the publish; the same request again joins it.
        """
        key: PublishKey = (version, path, parent, learner)
        task = self._publishes.get(key)
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
            task = asyncio.get_running_loop().create_task(self._publish(*key))
            self._publishes[key] = task
            task.add_done_callback(lambda done: self._ended(key, done))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if task.cancelled() and caller is not None and not caller.cancelling():
                raise self.shutting_down(f"{version} was not published") from None
            raise

    async def settled(self) -> None:
        """Returns when no publish is moving the samplers: the newest version is final."""
        async with self._moving:
            return

    async def stop(self) -> None:
        """Ends publishes in progress; no sampler stays paused."""
        publishes = list(self._publishes.values())
        for task in publishes:
            task.cancel()
        await asyncio.gather(*publishes, return_exceptions=True)

    def _ended(self, key: PublishKey, task: asyncio.Task[PublishResult]) -> None:
        del self._publishes[key]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("publish_refused", version=str(key[0]), error=str(error))

    def shutting_down(self, what: str) -> ServiceError:
        """The error of a publish that the engine's end cut short."""
        return ServiceError(
            reasons.ERROR_REASON_DRAINING,
            f"the engine is shutting down: {what}; retry when it is back",
            retry_after=1.0,
        )

    @asynccontextmanager
    async def turn(self, learner: str) -> AsyncIterator[None]:
        """Context without another publish. Raises ServiceError for a learner that has lost the
        run."""
        async with self._lock:
            self._allowed(learner)
            yield

    @asynccontextmanager
    async def samplers(self, learner: str) -> AsyncIterator[None]:
        """Context, within a turn, in which the samplers' weights may change. Waits for
        evaluation."""
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
        """Whether the version came over a group: its folder moves no sampler."""
        return version in self._bare

    async def record_given(self, version: WeightVersion) -> None:
        """Must run before samplers get a version that has no folder."""
        await self._journal.set_given(version)

    def serve_without_folder(self, version: WeightVersion, published: PublishResult) -> None:
        """Records that the samplers have `version`, whose folder follows."""
        self._bare.append(version)
        self._serve(version, published)

    async def check_version(
        self, version: WeightVersion, parent: WeightVersion | None
    ) -> WeightVersion | None:
        """Checks a version; see `versions.check_next`."""
        return await check_next(self._journal, self.version, version, parent)

    async def lineages(self) -> tuple[str, ...]:
        """All lineages of the run, the first one first. Raises ServiceError while the engine
        starts."""
        return await lineages(self._journal, self.version)

    async def _publish(
        self, version: WeightVersion, path: Path, parent: WeightVersion | None, learner: str
    ) -> PublishResult:
        self._allowed(learner)
        if self.awaits_folder(version):  # beside a publish in progress
            await self._name_folder(version, path)
            return PublishResult(samplers=0, paused_s=0.0)
        async with self.turn(learner):
            if version == self.version:
                await self._name_folder(version, path)
                return PublishResult(samplers=0, paused_s=0.0)
            shape = await self._check_folder(path)
            parent = await self.check_version(version, parent)
            async with self.samplers(learner):
                published = await self._move(version, path, parent)
                self._served = shape
                return published

    async def _name_folder(self, version: WeightVersion, path: Path) -> None:
        async with self._naming:
            if version not in self._bare:  # requested twice, or a later folder was quicker
                return
            shape = await self._check_folder(path)
            await self._record(version, path, None)
            self._served = shape
            self._bare = [one for one in self._bare if one.step > version.step]
            self._control.name_folder(version, path)
            log.info("folder_named", version=str(version), path=str(path))

    async def _move(
        self, version: WeightVersion, path: Path, parent: WeightVersion | None
    ) -> PublishResult:
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
        except PublishFailed as error:  # the same request again publishes it again
            raise ServiceError(
                reasons.ERROR_REASON_PUBLISH_FAILED, str(error), subject=str(version)
            ) from error
        self._folder = version, path

    def _serve(self, version: WeightVersion, published: PublishResult) -> None:
        self._version = version
        log.info("published", version=str(version), paused_s=round(published.paused_s, 4))
        self._changed(version.step)
        self._evaluation.start(version)

    async def _check_folder(self, path: Path) -> PolicyShape:
        """Raises ServiceError unless the folder is whole and holds the policy that is served."""
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
