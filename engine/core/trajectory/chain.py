"""A chain of tokens with their authors: the input of a sampler and the segments of a record. Pure.

Invariants
- `token_ids` only grows: the ids of turn j+1 begin with all ids of turn j.
- `token_ids` holds one placeholder for each image, as it is sent. `ImageSlot.tokens` is the number
  of tokens that a sampler made of it.
- A run of policy tokens becomes one segment for each weight version.

The chain knows neither events nor calls. In our own turn loop a trajectory has one chain for each
of its contexts; a rewrite begins the next one. A forest (`forest.py`) has one for each call of an
outside agent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from dataclasses import replace as replace_fields

import msgspec
from msgspec.structs import replace

from engine.types import VersionRun
from toolwright.types import (
    Author,
    BlobRef,
    FinishKind,
    FinishReason,
    Floats,
    Ids,
    SamplingParams,
    Segment,
    ids,
)

CONTINUED = FinishReason(kind=FinishKind.CONTINUED)
"""Finish of a run of policy tokens that another version continues."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageSlot:
    """An image that the policy is shown; `tokens` is None until a sampler has counted them."""

    blob: BlobRef
    in_response: bool
    tokens: int | None = None


class Chain(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens with their segments. (A Struct: replacing it costs 0.3 us.)"""

    token_ids: Ids = ids()
    """[n] int32, the beginning of the next request."""
    response_ids: int = 0
    """Number of `token_ids` after the prompt."""
    segments: tuple[Segment, ...] = ()
    images: tuple[ImageSlot, ...] = ()

    @classmethod
    def begun(cls, prompt: Ids, images: Iterable[BlobRef] = ()) -> Chain:
        """The chain of a prompt, [n] int32, and its images in order."""
        return cls(
            token_ids=prompt,
            segments=(Segment(author=Author.PROMPT, token_ids=prompt),),
            images=tuple(ImageSlot(blob=blob, in_response=False) for blob in images),
        )

    def acted(
        self,
        token_ids: Ids,
        logprobs: Floats,
        versions: Iterable[VersionRun],
        *,
        turn: int,
        sampling: SamplingParams | None,
        finish: FinishReason,
        image_tokens: Sequence[int] = (),
        trainable: bool = True,
    ) -> Chain:
        """The chain after the policy wrote `token_ids`, [n] int32, with `logprobs`, [n] float32.

        image_tokens: tokens of each image so far; empty if the request counted nothing new. Raises
        ValueError if the versions or image tokens do not add up to what they count.
        """
        runs = list(versions)
        if sum(count for _version, count in runs) != len(token_ids):
            raise ValueError(
                f"versions of {sum(count for _, count in runs)} tokens for {len(token_ids)}"
            )
        segments, start = [], 0
        for number, (version, count) in enumerate(runs):
            segments.append(
                Segment(
                    author=Author.MODEL,
                    token_ids=token_ids[start : start + count],
                    logprobs=logprobs[start : start + count],
                    weight_version=version,
                    turn=turn,
                    trainable=trainable,
                    sampling=sampling,
                    finish=finish if number == len(runs) - 1 else CONTINUED,
                )
            )
            start += count
        images = self.images
        if image_tokens:
            images = tuple(
                replace_fields(slot, tokens=tokens)
                for slot, tokens in zip(images, image_tokens, strict=True)
            )
        return self._grown(token_ids, segments, images)

    def appended(
        self, token_ids: Ids, author: Author, *, turn: int, images: Iterable[BlobRef] = ()
    ) -> Chain:
        """The chain after the environment wrote `token_ids`, [n] int32, which may be empty."""
        new = [Segment(author=author, token_ids=token_ids, turn=turn)] if token_ids else []
        shown = (ImageSlot(blob=blob, in_response=True) for blob in images)
        return self._grown(token_ids, new, (*self.images, *shown))

    def rewritten(
        self,
        shared: int,
        token_ids: Ids,
        *,
        turn: int,
        shown: int = 0,
        images: Iterable[BlobRef] = (),
    ) -> Chain:
        """The chain of a new context: the first `shared` tokens, copied and not trainable, then
        `token_ids`, [n] int32, as a prompt.

        shown: number of images in the copy. images: those of `token_ids`. `response_ids` of the new
        chain counts the tokens beyond the length of the first prompt.
        """
        prompt = len(self.token_ids) - self.response_ids
        segments = shared_segments(self.segments, shared)
        if token_ids:
            segments.append(Segment(author=Author.PROMPT, token_ids=token_ids, turn=turn))
        new = (ImageSlot(blob=blob, in_response=False) for blob in images)
        return Chain(
            token_ids=self.token_ids[:shared] + token_ids,
            response_ids=max(0, shared + len(token_ids) - prompt),
            segments=tuple(segments),
            images=(*self.images[:shown], *new),
        )

    def before_action(self, turn: int) -> Ids:
        """Ids before the action of a turn; all ids if that turn has no action yet."""
        count = 0
        for segment in self.segments:
            if segment.author is Author.MODEL and segment.turn == turn:
                break
            count += len(segment.token_ids)
        return self.token_ids[:count]

    def _grown(
        self, token_ids: Ids, segments: Iterable[Segment], images: tuple[ImageSlot, ...]
    ) -> Chain:
        return replace(
            self,
            token_ids=self.token_ids + token_ids,
            response_ids=self.response_ids + len(token_ids),
            segments=(*self.segments, *segments),
            images=images,
        )


def shared_segments(segments: Iterable[Segment], count: int) -> list[Segment]:
    """The first `count` tokens of some segments as the beginning of others, which do not train
    them."""
    found, left = [], count
    for segment in segments:
        if left <= 0:
            break
        found.append(_first(segment, left))
        left -= len(segment.token_ids)
    return found


def _first(segment: Segment, count: int) -> Segment:
    """At most the first `count` tokens of a segment, not trainable."""
    if len(segment.token_ids) <= count:
        return replace_fields(segment, trainable=False) if segment.trainable else segment
    return replace_fields(
        segment,
        token_ids=segment.token_ids[:count],
        logprobs=None if segment.logprobs is None else segment.logprobs[:count],
        finish=None if segment.finish is None else CONTINUED,
        trainable=False,
    )


def common_prefix(one: Ids, other: Ids) -> int:
    """Number of ids at which two arrays begin alike."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
