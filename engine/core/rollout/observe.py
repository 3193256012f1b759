"""The observation at the end of a turn: tools' answers, or a protocol's own words.

Invariants
- Observations stand in call order, whichever call was answered first.
- Neighbouring observations of one author are one segment; the frame around them belongs to the
  outer ones.
- The observation stays within the remaining room, and no image is cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from engine.core.images.media import Media
from engine.core.images.picture import UnfitImage, check_picture
from engine.core.images.placeholders import ImagesUnplaced, check_places
from engine.core.rollout.assignment import Assignment
from engine.core.rollout.decide import Rules, observation_room
from engine.core.rollout.view import Observation, fit_prefix, images_of, observation
from engine.core.tools.blobs import fetch
from engine.core.tools.services import ToolSessions
from engine.core.trajectory.events import Appended, Noted
from engine.core.trajectory.log import AttemptLog
from engine.errors import AttemptFailed
from engine.types import Say
from toolwright.text.truncation import Keep
from toolwright.types import Author, CallOutcome, CallRecord, Event, StopReason, ids


class Observer:
    """Appends observations to one attempt's log. media: bytes of all images that the trajectory
    shows."""

    def __init__(
        self,
        rules: Rules,
        assignment: Assignment,
        log: AttemptLog,
        media: dict[str, Media],
        tool_sessions: ToolSessions,
    ) -> None:
        self._rules = rules
        self._assignment = assignment
        self._log = log
        self._media = media
        self._tool_sessions = tool_sessions

    async def observe(self, seconds: float) -> StopReason | None:
        """Appends the outcomes of the turn's calls, `seconds` after its action. Returns a reason if
        that ends the trajectory. Raises AttemptFailed if an image cannot be fetched."""
        calls = self._log.state.calls_of(self._log.state.turn)
        outcomes = [call.outcome for call in calls]
        images: dict[str, Media] | None = {}
        if not self._assignment.withhold_observations:
            # A lost session has no images any more, and the policy sees nothing of them.
            if not any(outcome.session_lost for outcome in outcomes):
                images = await self._images(calls)
        else:
            outcomes = [replace(one, observation="", parts=(), valid=True) for one in outcomes]
        self._append(outcomes, images or {}, seconds)
        return StopReason.MAX_IMAGE_BYTES if images is None else None

    def say(self, said: Say) -> None:
        """Appends a protocol's own text, which needs no tool."""
        outcome = CallOutcome(
            observation=said.text, valid=True, author=said.author, token_budget=said.budget
        )
        self._append([outcome], {}, 0.0)

    async def _images(self, calls: Sequence[CallRecord]) -> dict[str, Media] | None:
        """The turn's images, by hash, that the policy sees and a sampler takes. None if the
        trajectory would exceed its limit of image bytes."""
        codec = self._rules.codec
        wanted = [(call, blob) for call in calls for blob in images_of(call.outcome, codec)]
        if not wanted:
            return {}
        shown = sum(slot.blob.size for slot in self._log.state.images)
        if shown + sum(blob.size for _, blob in wanted) > self._rules.limits.image_bytes:
            return None
        for call, blob in wanted:
            if blob.sha256 not in self._media:
                session = self._tool_sessions.session_of(call.tool)
                self._media[blob.sha256] = await fetch(session, blob)
        found = {blob.sha256: self._media[blob.sha256] for _, blob in wanted}
        return {name: image for name, image in found.items() if self._fits(image)}

    def _fits(self, image: Media) -> bool:
        """Whether a sampler takes the image. An image that no sampler takes is named instead of
        shown."""
        try:
            check_picture(image.data)
        except UnfitImage as error:
            self._note("image_not_shown", sha256=image.blob.sha256, error=str(error))
            return False
        return True

    def _append(
        self, outcomes: Sequence[CallOutcome], images: dict[str, Media], seconds: float
    ) -> None:
        protocol, codec = self._rules.protocol, self._rules.codec
        try:
            runs = self._runs(outcomes, images)
            state = self._log.state
            action = state.actions[-1]
            head, tail = protocol.frame(action.stop, codec, runs[0][0] if runs else Author.TOOL)
            if action.ends_turn and head[:1] == list(state.token_ids[-1:]):
                head = head[1:]  # GLM's policies write the next role's token themselves
            between = protocol.observation(["", ""], codec) if len(runs) > 1 else []
            texts = [run.token_ids for _, run in runs] or [[]]
            texts[0] = [*head, *texts[0]]
            texts[1:] = [[*between, *text] for text in texts[1:]]
            texts[-1] = [*texts[-1], *tail]
            shown = [run.images for _, run in runs] or [[]]
            for text, seen in zip(texts, shown, strict=True):
                check_places(text, len(seen), codec)
        except ImagesUnplaced as error:
            raise AttemptFailed(f"task {self._assignment.task.id}: {error}") from error
        cut = sum(len(run.token_ids) for _, run in runs if run.cut)
        if cut:
            self._note("observation_truncated", tokens=cut)
        authors = [author for author, _ in runs] or [Author.TOOL]
        for number, (author, text, seen) in enumerate(zip(authors, texts, shown, strict=True)):
            last = number == len(texts) - 1
            if not self._append_run(author, text, seen, seconds if last else 0.0, last=last):
                return

    def _runs(
        self, outcomes: Sequence[CallOutcome], images: dict[str, Media]
    ) -> list[tuple[Author, Observation]]:
        """One observation for each run of neighbouring outcomes of one author, without the
        frame."""
        return [
            (author, self._observation(list(run), images))
            for author, run in groupby(outcomes, key=lambda outcome: outcome.author)
        ]

    def _observation(self, outcomes: list[CallOutcome], images: dict[str, Media]) -> Observation:
        """Outcomes cut to the sum of their budgets. Outcomes without a budget share the recipe's
        limit."""
        rules = self._rules
        limit = sum(outcome.token_budget for outcome in outcomes)
        if not all(outcome.token_budget for outcome in outcomes):
            limit += rules.limits.observation
        return observation(
            outcomes,
            images,
            rules.protocol,
            rules.codec,
            limit=limit,
            keep=self._keep_of(outcomes),
        )

    def _keep_of(self, outcomes: Sequence[CallOutcome]) -> Keep:
        """Which end of a long observation stays. The rule of [tools.NAME] counts if all calls share
        it, else `engine.observation_keep`."""
        own = {self._tool_sessions.keep_of(one.tool) for one in outcomes if one.tool}
        rule = own.pop() if len(own) == 1 else ""
        return rule or self._rules.observation_keep

    def _append_run(
        self,
        author: Author,
        token_ids: list[int],
        images: list[Media],
        seconds: float,
        *,
        last: bool,
    ) -> bool:
        """Returns whether the whole run fitted."""
        state, limits = self._log.state, self._rules.limits
        mark = self._rules.codec.image_mark
        room = max(0, observation_room(state, limits))
        kept = fit_prefix(token_ids, room, mark, limits.image_tokens)
        fitted = len(kept) == len(token_ids)
        shown = images[: kept.count(mark.placeholder)] if mark else []
        self._log.append(
            Appended(
                token_ids=ids(kept),
                author=author,
                images=tuple(image.blob for image in shown),
                fitted=fitted,
                last=last or not fitted,
                seconds=seconds,
            ),
            shown,
        )
        return fitted

    def _note(self, kind: str, **data: object) -> None:
        turn = self._log.state.turn
        self._log.append(Noted(note=Event(kind=kind, turn=turn, data=data)))
