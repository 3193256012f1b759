"""One attempt at one trajectory: the turn loop (spec 3.2), owned by one task, no locks.

Invariants
- The call of a turn is on the channel before the stream of that turn has ended.
- The ids sent at turn j+1 begin with all ids of turn j, its images with all images of turn j.
- What the policy sees is what tools answered; a failure of infrastructure ends the attempt.
- The session is closed in every case, and with it every call still in flight is cancelled.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from engine.errors import AttemptFailed, SamplerFailed, StartupError
from engine.images.media import Media, blob_of
from engine.images.picture import UnfitImage, check_picture
from engine.images.places import ExpansionMismatch, ImagesUnplaced, check_places, data_uri, visible
from engine.rollout.assignment import Assignment, Setting
from engine.rollout.timelimit import TimeLimit
from engine.rollout.transcript import Transcript
from engine.rollout.turn import Turn
from engine.rollout.view import images_of, observation, prompt_ids
from engine.sampler.stops import StopTable
from engine.tools.blobs import fetch
from engine.tools.calls import PendingCall
from engine.tools.environment import Session
from engine.types import Answer, Call, CallOutcome, Generated, Images, NoAction
from toolwright.types import (
    CallRecord,
    CallTimings,
    Event,
    FinishKind,
    Status,
    StopReason,
    Trajectory,
    TrajectoryTimings,
)


class Rollout:
    """One attempt. `run` returns the finished trajectory or raises AttemptFailed."""

    def __init__(self, setting: Setting, assignment: Assignment) -> None:
        self._setting = setting
        self._assignment = assignment
        self._key = f"{assignment.trajectory_id}/{assignment.attempt}"
        self._calls: list[CallRecord] = []
        self._events: list[Event] = []
        self._clock = _Clock()
        self._limit = TimeLimit(setting.limits.seconds)
        self._image_data: list[str] = []
        self._final_text = ""

    async def run(self) -> Trajectory:
        """The trajectory, not yet rewarded. Cancellation closes the session and goes on."""
        setting, assignment = self._setting, self._assignment
        opening = time.monotonic()
        session = await setting.tools.open_session(self._key, assignment.task, assignment.media)
        self._clock.open_s = time.monotonic() - opening
        try:
            transcript = self._opening(session)
            try:
                async with self._limit, session.held():
                    reason = await self._turns(session, transcript)
            except TimeoutError as error:
                if not setting.pool.any_up:  # the policy had no chance: not its failure
                    raise SamplerFailed("no sampler up until the trajectory's limit") from error
                await session.check_reach()
                reason = StopReason.TRAJECTORY_TIMEOUT
        finally:
            session.close()
            setting.pool.release(self._key)
        return self._finished(transcript, reason)

    def _opening(self, session: Session) -> Transcript:
        """The prompt with its images. StartupError for a task that does not fit the recipe."""
        setting, task, limits = self._setting, self._assignment.task, self._setting.limits
        mark = setting.codec.image_mark
        images = visible(self._assignment.media) if mark else []
        try:
            prompt = prompt_ids(setting.protocol, task, session.tools, setting.codec)
        except ValueError as error:
            raise StartupError(f"task {task.id}: {error}") from error
        for image in images:
            try:
                check_picture(image.data)
            except UnfitImage as error:
                raise StartupError(f"task {task.id}: it shows {error}") from error
        size = sum(image.blob.size for image in images)
        if size > limits.image_bytes:
            raise StartupError(
                f"task {task.id}: its images have {size} bytes, task.limits.image_bytes is "
                f"{limits.image_bytes}: raise it, or shrink them"
            )
        return Transcript(
            prompt,
            response=limits.response,
            model=limits.model,
            images=images,
            mark=mark,
            image_tokens=limits.image_tokens,
        )

    async def _turns(self, session: Session, transcript: Transcript) -> StopReason:
        setting = self._setting
        tools, stops = session.tools, self._stops(session)
        for turn in range(setting.limits.turns + 1):
            if transcript.response_room <= 0:
                return StopReason.MAX_RESPONSE_LENGTH
            if transcript.model_room <= 1:
                return StopReason.MAX_MODEL_LENGTH
            if session.tools != tools:  # calls have made some
                tools, stops = session.tools, self._stops(session)
            action = Turn(self._setting, self._assignment, session, turn)
            began = time.monotonic()
            generated = await self._generate(transcript, stops, action)
            self._clock.generate_s += time.monotonic() - began
            transcript.append_action(generated, turn=turn, sampling=self._assignment.sampling)
            decision = action.decision
            if decision is None:  # no stop came: the budget of this action or of the rest is used
                self._final_text = setting.codec.decode(generated.token_ids)
                return self._unstopped(generated, transcript)
            self._final_text = action.text
            if isinstance(decision, Answer):
                return StopReason.ANSWERED
            if isinstance(decision, NoAction):
                return StopReason.EMPTY_OUTPUT if decision.empty else StopReason.NO_ACTION_IN_OUTPUT
            if turn == setting.limits.turns:
                return StopReason.MAX_TURNS
            outcomes = await self._observe(action, decision)
            images = await self._images(transcript, action, outcomes)
            fitted = self._append_observation(transcript, action, outcomes, images or {})
            if any(o.session_lost for o in outcomes):
                return StopReason.SESSION_LOST
            if any(o.done for o in outcomes):
                return StopReason.TOOL_SIGNALED_DONE
            if images is None:
                return StopReason.MAX_IMAGE_BYTES
            if not fitted:
                return self._full(transcript)
        raise AssertionError("the last turn returns")

    def _stops(self, session: Session) -> StopTable:
        setting = self._setting
        return StopTable(setting.protocol.stops(session.tools, setting.codec), setting.codec)

    async def _generate(self, transcript: Transcript, stops: StopTable, action: Turn) -> Generated:
        limits = self._setting.limits
        room = min(limits.action, transcript.response_room, transcript.model_room)
        room = min(room, self._assignment.sampling.max_new_tokens or room)
        try:
            generated = await self._setting.pool.generate(
                key=self._key,
                token_ids=array("i", transcript.token_ids),
                sampling=self._assignment.sampling,
                max_new_tokens=room,
                stops=stops,
                on_action=action.on_action,
                images=self._request_images(transcript),
                clock=self._limit,
            )
        except SamplerFailed as error:
            if action.turn:  # what it refuses may be an observation: the next attempt's is another
                raise SamplerFailed(str(error)) from error
            raise
        try:
            transcript.learn(generated)
        except ExpansionMismatch as error:
            raise SamplerFailed(
                f"{error}; the sampler's image processor must be that of policy.model and leave "
                "all other tokens as they are",
                permanent=True,
            ) from error
        return generated

    def _request_images(self, transcript: Transcript) -> Images | None:
        images = transcript.images
        if not images:
            return None
        self._image_data += [data_uri(image) for image in images[len(self._image_data) :]]
        return Images(data=tuple(self._image_data), tell_prompt=transcript.has_unseen_images)

    def _unstopped(self, generated: Generated, transcript: Transcript) -> StopReason:
        if not generated.token_ids:
            return StopReason.EMPTY_OUTPUT
        if generated.finish.kind is FinishKind.STOP:
            return StopReason.NO_ACTION_IN_OUTPUT
        if transcript.response_room > 0 and transcript.model_room > 1:
            return StopReason.MAX_ACTION_LENGTH
        return self._full(transcript)

    def _full(self, transcript: Transcript) -> StopReason:
        """Which budget ended it. An image that did not fit leaves room in both."""
        if transcript.model_room <= 0 or transcript.model_room < transcript.response_room:
            return StopReason.MAX_MODEL_LENGTH
        return StopReason.MAX_RESPONSE_LENGTH

    async def _observe(self, action: Turn, calls: Sequence[Call]) -> list[CallOutcome]:
        """Outcomes in call order, each recorded."""
        began = time.monotonic()
        outcomes = []
        for index, (request, pending) in enumerate(zip(calls, action.pending, strict=True)):
            if isinstance(pending, PendingCall):
                result = await pending.result(self._limit)
            else:
                result = pending
            ended_ns = time.monotonic_ns()
            outcomes.append(result)
            self._calls.append(
                CallRecord(
                    call_id=action.call_id(index),
                    turn=action.turn,
                    index=index,
                    tool=result.tool or request.tool,
                    action=request.action,
                    observation=result.text,
                    valid=result.valid,
                    invalid_reason=result.invalid_reason,
                    done=result.done,
                    error=result.error,
                    reward=result.reward,
                    metrics=result.metrics,
                    truncated=result.truncated,
                    isolation=result.isolation,
                    timings=CallTimings(
                        stop_read_ns=action.stop_read_ns,
                        dispatched_ns=_dispatched_ns(pending),
                        result_ns=ended_ns,
                        queued_s=result.queued_s,
                        run_s=result.run_s,
                    ),
                )
            )
        self._clock.tool_s += time.monotonic() - began
        return outcomes

    async def _images(
        self, transcript: Transcript, action: Turn, outcomes: Sequence[CallOutcome]
    ) -> dict[str, Media] | None:
        """Those that the policy shall see of this turn and a sampler takes, by hash; None when the
        trajectory's would have more bytes than it may."""
        if self._assignment.withhold_observations or any(o.session_lost for o in outcomes):
            return {}  # nothing is shown of them, or their service has nothing any more
        wanted = [
            (pending, image)
            for pending, outcome in zip(action.pending, outcomes, strict=True)
            for image in images_of(outcome, self._setting.codec)
        ]
        size = sum(blob_of(image).size for _, image in wanted)
        if transcript.image_bytes + size > self._setting.limits.image_bytes:
            return None
        found: dict[str, Media] = {}
        began = time.monotonic()
        for pending, image in wanted:
            if isinstance(image, Media):
                found[image.blob.sha256] = image
            elif image.sha256 not in found and isinstance(pending, PendingCall):
                found[image.sha256] = await fetch(pending.place, image)
        self._clock.tool_s += time.monotonic() - began
        return {name: image for name, image in found.items() if self._fits(image, action.turn)}

    def _fits(self, image: Media, turn: int) -> bool:
        """Whether a sampler takes it; what a tool made that none does is named, not shown."""
        try:
            check_picture(image.data)
        except UnfitImage as error:
            data = {"sha256": image.blob.sha256, "error": str(error)}
            self._events.append(Event(kind="image_not_shown", turn=turn, data=data))
            return False
        return True

    def _append_observation(
        self,
        transcript: Transcript,
        action: Turn,
        outcomes: Sequence[CallOutcome],
        images: dict[str, Media],
    ) -> bool:
        setting = self._setting
        if self._assignment.withhold_observations:
            outcomes = [replace(outcome, text="", parts=(), valid=True) for outcome in outcomes]
        try:
            seen = observation(
                outcomes,
                images,
                setting.protocol,
                setting.codec,
                limit=setting.limits.observation,
                keep=setting.keep,
            )
            head, tail = setting.protocol.frame(action.stop, setting.codec)
            token_ids = [*head, *seen.token_ids, *tail]
            check_places(token_ids, len(seen.images), setting.codec)
        except ImagesUnplaced as error:
            raise AttemptFailed(f"task {self._assignment.task.id}: {error}") from error
        if seen.cut:
            self._events.append(
                Event(
                    kind="observation_truncated",
                    turn=action.turn,
                    data={"tokens": len(seen.token_ids)},
                )
            )
        return transcript.append_observation(token_ids, turn=action.turn, images=seen.images)

    def _finished(self, transcript: Transcript, reason: StopReason) -> Trajectory:
        assignment = self._assignment
        assignment.shown.update({image.blob.sha256: image for image in transcript.images})
        return Trajectory(
            id=assignment.trajectory_id,
            group_id=assignment.group_id,
            index=assignment.index,
            task=assignment.task,
            sequences=(transcript.sequence(f"{assignment.trajectory_id}.0"),),
            calls=tuple(self._calls),
            events=tuple(self._events),
            status=_STATUS.get(reason, Status.COMPLETED),
            stop_reason=reason,
            timings=self._clock.timings(),
            tokenizer_hash=self._setting.tokenizer_hash,
            metadata={"final_text": self._final_text},
        )


@dataclass(slots=True, kw_only=True)
class _Clock:
    """Where the time of this attempt goes, seconds."""

    began: float = field(default_factory=time.monotonic)
    open_s: float = 0.0
    generate_s: float = 0.0
    tool_s: float = 0.0

    def timings(self) -> TrajectoryTimings:
        return TrajectoryTimings(
            wall_s=time.monotonic() - self.began,
            generate_s=self.generate_s,
            tool_s=self.tool_s,
            open_s=self.open_s,
        )


_STATUS = {
    StopReason.MAX_TURNS: Status.TRUNCATED,
    StopReason.MAX_RESPONSE_LENGTH: Status.TRUNCATED,
    StopReason.MAX_ACTION_LENGTH: Status.TRUNCATED,
    StopReason.MAX_MODEL_LENGTH: Status.TRUNCATED,
    StopReason.MAX_IMAGE_BYTES: Status.TRUNCATED,
    StopReason.TRAJECTORY_TIMEOUT: Status.TIMED_OUT,
}


def _dispatched_ns(pending: PendingCall | CallOutcome) -> int:
    return pending.dispatched_ns if isinstance(pending, PendingCall) else 0
