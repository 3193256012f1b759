"""The policy's input: its prompt and the outcomes of its calls, as ids with their images.

For a policy that reads only text, media are named in the text and never fetched. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from engine.core.images.media import Media
from engine.core.images.placeholders import (
    ImagesUnplaced,
    check_places,
    fold,
    is_image,
    plain,
    unfold,
    visible,
    with_images,
)
from engine.core.protocols import Protocol
from engine.core.text.cut import truncate_observation
from engine.types import Codec, ImageMark, ToolSpec
from toolwright.text.truncation import Keep
from toolwright.types import Author, BlobRef, CallOutcome, Segment, Task

_UNFIT = (TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
MARKER = " ... "
"""Where something was cut out of an observation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """A turn's observation as the policy reads it, without the protocol's frame."""

    token_ids: list[int]
    images: list[Media]
    """One for each placeholder in `token_ids`."""
    cut: bool
    """Whether something was left out."""


def prompt_ids(
    protocol: Protocol, task: Task, tools: Sequence[ToolSpec], codec: Codec
) -> list[int]:
    """Ids of the first request, with one placeholder for each image that the policy is shown.

    Raises ValueError if protocol, chat template, task and images do not fit. A recipe's protocol
    may raise any of `_UNFIT` for a row that it does not expect.
    """
    mark = codec.image_mark
    try:
        if mark is None:
            _check_texts(task)
            return protocol.prompt(task, tools, codec)
        token_ids = protocol.prompt(with_images(task, mark), tools, codec)
    except _UNFIT as error:
        raise ValueError(f"task.protocol does not take the task: {error!r}") from error
    try:
        check_places(token_ids, len(visible(task.media)), codec)
        for frame in protocol.frame(None, codec):
            check_places(frame, 0, codec)
    except ImagesUnplaced as error:
        raise ImagesUnplaced(
            f"what task.protocol makes of the task and its tools has {error}: let it render the "
            "task's messages, parts and all, and leave such words out of the tools' descriptions, "
            "task.protocol_options and tool_calls"
        ) from error
    return token_ids


def _check_texts(task: Task) -> None:
    """Raises ValueError for a message with parts: a template would write the list as Python prints
    it."""
    for number, message in enumerate(task.messages, 1):
        if isinstance(parts := message.get("content"), list):
            kinds = {str(part.get("type")) for part in parts if isinstance(part, Mapping)}
            raise ImagesUnplaced(
                f"message {number} has parts ({', '.join(sorted(kinds))}), and the policy reads "
                "text alone: write its content as a text, or train a policy that sees"
            )


def images_of(outcome: CallOutcome, codec: Codec) -> list[BlobRef]:
    """Images of an outcome that the policy must see, in order."""
    if codec.image_mark is None:
        return []
    return [part for part in outcome.parts if isinstance(part, BlobRef) and _is_shown(part)]


def media_name(blob: BlobRef) -> str:
    """How a text names media."""
    return f"[{blob.media_type}]"


def observation(
    outcomes: Sequence[CallOutcome],
    images: Mapping[str, Media],
    protocol: Protocol,
    codec: Codec,
    *,
    limit: int,
    keep: Keep,
) -> Observation:
    """The turn's outcomes as the policy reads them. images: by hash; an image that is missing there
    is only named.

    An observation of more than `limit` tokens is cut, but never inside an image. An image counts as
    one token here.
    """
    texts = [_text(outcome, images, codec) for outcome in outcomes]
    author = outcomes[0].author if outcomes else Author.TOOL
    body = protocol.observation(texts, codec, author)
    shown = [
        images[blob.sha256]
        for outcome in outcomes
        for blob in images_of(outcome, codec)
        if blob.sha256 in images
    ]
    mark = codec.image_mark
    units = body if mark is None else fold(body, mark)
    if mark is not None:
        places = body.count(mark.placeholder)
        if places != len(shown) or sum(unit < 0 for unit in units) != len(shown):
            raise ImagesUnplaced(
                f"task.protocol writes {places} images into an observation of {len(shown)}: let "
                "it keep each text of a call whole, once"
            )
    cut = len(units) > limit
    if cut:
        marker = codec.encode(MARKER)
        units = truncate_observation(units, limit=limit, marker=marker, keep=keep)
    if mark is None:
        return Observation(token_ids=units, images=[], cut=cut)
    token_ids, kept = unfold(units, mark)
    return Observation(token_ids=token_ids, images=[shown[number] for number in kept], cut=cut)


def fit_prefix(
    token_ids: list[int], room: int, mark: ImageMark | None, image_tokens: int
) -> list[int]:
    """The beginning of `token_ids` that fits into `room` tokens. An image takes `image_tokens`; its
    mark fits as a whole or is left out."""
    if mark is None:
        return token_ids[:room]
    units = fold(token_ids, mark)
    for position, unit in enumerate(units):
        room -= len(mark.token_ids) - 1 + image_tokens if unit < 0 else 1
        if room < 0:
            return unfold(units[:position], mark)[0]
    return token_ids


def segment_text(segment: Segment, codec: Codec) -> str:
    """A segment's text for people, with each image's media type in place of its placeholders."""
    words, at = [], 0
    for ref in segment.media:
        words += [codec.decode(segment.token_ids[at : ref.token_offset]), media_name(ref.blob)]
        at = ref.token_offset + ref.placeholder_tokens
    return "".join([*words, codec.decode(segment.token_ids[at:])])


def _text(outcome: CallOutcome, images: Mapping[str, Media], codec: Codec) -> str:
    """One outcome as text, with the mark in place of each image."""
    mark = codec.image_mark
    if mark is None:
        return outcome.observation or ("" if outcome.valid else outcome.invalid_reason)
    if not outcome.valid and not outcome.observation:
        return plain(outcome.invalid_reason, mark)
    words = [_words(part, images) for part in outcome.parts or (outcome.observation,)]
    # Adjacent texts are joined first: together they may spell what neither spells alone.
    return "".join(
        mark.text * len(list(run)) if of_images else plain("".join(filter(None, run)), mark)
        for of_images, run in groupby(words, key=lambda word: word is None)
    )


def _words(part: str | BlobRef, images: Mapping[str, Media]) -> str | None:
    """None for an image that is shown."""
    if isinstance(part, str):
        return part
    return None if _is_shown(part) and part.sha256 in images else media_name(part)


def _is_shown(blob: BlobRef) -> bool:
    return is_image(blob.media_type)
