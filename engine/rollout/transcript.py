"""The token record of one trajectory while it grows: append only, budgets kept.

Invariants
- `token_ids` at turn j+1 begins with all of `token_ids` at turn j.
- `used` counts response tokens of both kinds, actions and observations. It is never above
  `response` but by images that took more than was set aside for them.
- A run of policy tokens becomes one segment a weight version.
- `token_ids` holds one placeholder for each image, as it is sent. The record holds as many as the
  sampler made of it, and what it once made of an image it makes again.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Many
from dataclasses import dataclass, replace

from engine.images.media import Media
from engine.images.places import ExpansionMismatch, expansions, fold, unfold
from engine.types import Generated, ImageMark
from toolwright.types import (
    Author,
    FinishKind,
    FinishReason,
    MediaRef,
    SamplingParams,
    Segment,
    Sequence,
)

UNSEEN = 1
"""Placeholder tokens of an image that no sampler was shown."""


@dataclass(slots=True)
class _Image:
    """One that the policy is shown; `tokens` None until a sampler has told."""

    media: Media
    in_response: bool
    tokens: int | None = None


class Transcript:
    """One sequence under construction; budgets in tokens (spec 3.2).

    mark: how the policy is shown an image, once for each of `images` in the prompt.
    image_tokens: set aside for an image until its true number is known.
    """

    def __init__(
        self,
        prompt: list[int],
        *,
        response: int,
        model: int,
        images: Many[Media] = (),
        mark: ImageMark | None = None,
        image_tokens: int = 1,
    ) -> None:
        self.token_ids: list[int] = list(prompt)
        self._response_ids = 0
        self._response = response
        self._model = model
        self._mark = mark
        self._placeholder = mark.placeholder if mark else None
        self._image_tokens = image_tokens
        self._images = [_Image(one, in_response=False) for one in images]
        self._segments: list[Segment] = [Segment(author=Author.PROMPT, token_ids=tuple(prompt))]

    @property
    def used(self) -> int:
        """Response tokens so far."""
        return self._response_ids + self._more(one for one in self._images if one.in_response)

    @property
    def response_room(self) -> int:
        """Response tokens that may still come."""
        return self._response - self.used

    @property
    def model_room(self) -> int:
        """Tokens that the sampler's context still has."""
        return self._model - len(self.token_ids) - self._more(iter(self._images))

    @property
    def images(self) -> list[Media]:
        """One for each placeholder of `token_ids` that the policy did not write."""
        return [one.media for one in self._images]

    @property
    def image_bytes(self) -> int:
        return sum(one.media.blob.size for one in self._images)

    @property
    def has_unseen_images(self) -> bool:
        """The next request shows some for the first time."""
        return any(one.tokens is None for one in self._images)

    def learn(self, generated: Generated) -> None:
        """Takes over what the sampler made of the images of `token_ids`, before its own tokens
        are appended. ExpansionMismatch when it is not what it made of them before."""
        if not self._images:
            return
        if self.has_unseen_images:
            counts = expansions(self.token_ids, generated.prompt_ids, self._placeholder or 0)
            for number, (one, count) in enumerate(zip(self._images, counts, strict=True)):
                if one.tokens not in (None, count):
                    raise ExpansionMismatch(
                        f"image {number} took {one.tokens} tokens before and {count} now"
                    )
                one.tokens = count
        # The count alone tells enough while the server puts images into the very ids that it was
        # sent: SGLang's way unless SGLANG_MM_AVOID_RETOKENIZE is off. Else it encodes the decoded
        # text anew, and other ids may be as many.
        expected = len(self.token_ids) + self._more(iter(self._images))
        if generated.prompt_tokens != expected:
            raise ExpansionMismatch(
                f"the prompt has {expected} tokens, the sampler counted {generated.prompt_tokens}"
            )

    def append_action(
        self, generated: Generated, *, turn: int, sampling: SamplingParams | None = None
    ) -> None:
        """Adds the policy's tokens of one turn, split where the weight version changes."""
        start = 0
        for number, (version, length) in enumerate(generated.versions):
            end = start + length
            last = number == len(generated.versions) - 1
            self._segments.append(
                Segment(
                    author=Author.MODEL,
                    token_ids=tuple(generated.token_ids[start:end]),
                    logprobs=tuple(generated.logprobs[start:end]),
                    weight_version=version,
                    turn=turn,
                    trainable=True,
                    sampling=sampling,
                    finish=generated.finish if last else FinishReason(kind=FinishKind.CONTINUED),
                )
            )
            start = end
        self.token_ids.extend(generated.token_ids)
        self._response_ids += len(generated.token_ids)

    def append_observation(
        self,
        token_ids: list[int],
        *,
        turn: int,
        images: Many[Media] = (),
        author: Author = Author.TOOL,
    ) -> bool:
        """Adds what the environment said, cut to the room left but never inside an image; True
        when it fitted whole. `images`: one for each placeholder."""
        room = max(0, min(self.response_room, self.model_room))
        kept = self._fitting(token_ids, room, self._mark) if self._mark else token_ids[:room]
        if kept:
            shown = sum(token == self._placeholder for token in kept) if images else 0
            self._images += [_Image(one, in_response=True) for one in images[:shown]]
            self._segments.append(Segment(author=author, token_ids=tuple(kept), turn=turn))
            self.token_ids.extend(kept)
            self._response_ids += len(kept)
        return len(kept) == len(token_ids)

    def sequence(self, identity: str) -> Sequence:
        """The record: images expanded, each with its place."""
        images = iter(self._images)
        return Sequence(
            id=identity,
            segments=tuple(self._expanded(segment, images) for segment in self._segments),
        )

    def _expanded(self, segment: Segment, images: Iterator[_Image]) -> Segment:
        if self._placeholder is None or segment.author is Author.MODEL:
            return segment
        token_ids: list[int] = []
        media: list[MediaRef] = []
        for token in segment.token_ids:
            if token != self._placeholder:
                token_ids.append(token)
                continue
            one = next(images)
            tokens = one.tokens or UNSEEN
            media.append(
                MediaRef(
                    blob=one.media.blob, token_offset=len(token_ids), placeholder_tokens=tokens
                )
            )
            token_ids.extend([token] * tokens)
        return replace(segment, token_ids=tuple(token_ids), media=tuple(media))

    def _fitting(self, token_ids: Many[int], room: int, mark: ImageMark) -> list[int]:
        """What fits of the ids; an image takes its whole mark and the full number of its tokens."""
        units = fold(token_ids, mark)
        image = len(mark.token_ids) - 1 + self._image_tokens
        for position, unit in enumerate(units):
            room -= image if unit < 0 else 1
            if room < 0:
                return unfold(units[:position], mark)[0]
        return list(token_ids)

    def _more(self, images: Iterator[_Image]) -> int:
        """Tokens that images take beside the one placeholder in `token_ids`."""
        return sum((one.tokens or self._image_tokens) - 1 for one in images)
