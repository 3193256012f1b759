"""Images in the policy's input: placeholders in the sent ids, bytes beside them. Pure.

The engine sends one placeholder token for each image. The sampler expands it to the number of
tokens that its image processor needs, and returns the expanded ids. Sent ids never change, so turn
j+1 begins with all ids of turn j; the record holds the expanded ids.

Invariants
- Every placeholder in a prompt or an observation stands for an image. Other text that spells one is
  escaped, in tools' results and in questions.
- Placeholders and images have the same order.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from engine.core.images.media import Media
from engine.types import Codec, Generated, ImageMark
from toolwright.types import MediaRef, Task

PLACE = "<image>"
"""Place of the next image in a task's text, as in verl's data sets."""

_Shown = TypeVar("_Shown", Media, MediaRef)
_IMAGE_PARTS = ("image", "image_url")


class ImagesUnplaced(ValueError):
    """Images and their places in a conversation do not match."""


class ExpansionMismatch(ValueError):
    """The sampler's prompt is not the sent one with its images expanded."""


def is_image(media_type: str) -> bool:
    """Whether samplers take the type as `image_data`; only tools get videos and sound."""
    return media_type.startswith("image/")


def data_uri(media: Media) -> str:
    """The form of an image in a request."""
    return f"data:{media.blob.media_type};base64,{base64.b64encode(media.data).decode()}"


def plain(text: str, mark: ImageMark) -> str:
    """The text with all spellings of placeholders escaped."""
    for spelled in (*mark.reserved, PLACE):
        text = text.replace(spelled, f"{spelled[0]} {spelled[1:]}")
    return text


def forges(text: str, mark: ImageMark) -> bool:
    """Whether a sampler would read a placeholder of an image or video in the text."""
    return plain(text, mark) != text


def check_places(token_ids: Sequence[int], images: int, codec: Codec) -> None:
    """Raises ImagesUnplaced unless a sampler finds exactly `images` placeholders in the ids.

    SGLang decodes the ids and searches the text, so the text is checked as well.
    """
    mark = codec.image_mark
    if mark is None:
        return
    places = token_ids.count(mark.placeholder)
    if places != images or sum(unit < 0 for unit in fold(token_ids, mark)) != images:
        raise ImagesUnplaced(f"{places} images in place of {images}")
    for piece in codec.decode(token_ids).split(mark.text):
        if forges(piece, mark):
            words = next(word for word in (*mark.reserved, PLACE) if word in piece)
            raise ImagesUnplaced(f"a text spells {words}, which the sampler takes for media")


def with_images(task: Task, mark: ImageMark) -> Task:
    """The task with its images as parts of its messages.

    Its texts or its own parts place them; without places they come before the first user message's
    text. Raises ImagesUnplaced unless there are as many places as images.
    """
    images = len(visible(task.media))
    messages = list(task.messages) or [{"role": "user", "content": task.prompt}]
    if any(_is_image_part(part) for message in messages for part in _parts(message)):
        split = False
    else:
        split = any(PLACE in text for message in messages for text in _texts(message))
    split = split and images > 0
    placed = [{**m, "content": list(_placed(m, mark, split=split))} for m in messages]
    found = sum(part["type"] == "image" for message in placed for part in message["content"])
    if images and not found:
        first = next((m for m in placed if m.get("role") == "user"), placed[0])
        first["content"] = [{"type": "image"}] * images + first["content"]
        found = images
    if found != images:
        raise ImagesUnplaced(
            f"its messages have {found} places for {images} images: write {PLACE} once for each "
            "image, or nowhere"
        )
    return replace(task, prompt="", messages=tuple(_text_if_possible(m) for m in placed))


def visible(media: Iterable[_Shown]) -> list[_Shown]:
    """The media of a task that a vision policy sees, in order."""
    return [one for one in media if is_image(one.blob.media_type)]


def fold(token_ids: Sequence[int], mark: ImageMark) -> list[int]:
    """The ids with each image mark as one negative number, -1 for the first image.

    So a cut never splits a mark.
    """
    units: list[int] = []
    seen, at, length = 0, 0, len(mark.token_ids)
    while at < len(token_ids):
        if tuple(token_ids[at : at + length]) == mark.token_ids:
            seen += 1
            units.append(-seen)
            at += length
        else:
            units.append(token_ids[at])
            at += 1
    return units


def unfold(units: Sequence[int], mark: ImageMark) -> tuple[list[int], list[int]]:
    """(token ids, numbers of the remaining images from 0): the inverse of `fold`, after a cut."""
    token_ids: list[int] = []
    for unit in units:
        token_ids.extend(mark.token_ids if unit < 0 else (unit,))
    return token_ids, [-unit - 1 for unit in units if unit < 0]


def expansions(sent: Sequence[int], received: Sequence[int], placeholder: int) -> list[int]:
    """Number of tokens in `received` for each placeholder in `sent`.

    Raises ExpansionMismatch if other tokens differ, or if an image got no token.
    """
    counts: list[int] = []
    at = 0
    for position, token in enumerate(sent):
        if token != placeholder:
            if at >= len(received) or received[at] != token:
                raise ExpansionMismatch(f"token {position} of the prompt came back as another")
            at += 1
            continue
        start = at
        while at < len(received) and received[at] == placeholder:
            at += 1
        if at == start:
            raise ExpansionMismatch(f"image {len(counts)} got no tokens")
        counts.append(at - start)
    if at != len(received):
        raise ExpansionMismatch(f"{len(received) - at} tokens were added to the prompt")
    return counts


def check_expansion(
    sent: Sequence[int], known: Sequence[int | None], generated: Generated, placeholder: int
) -> tuple[int, ...]:
    """Number of tokens of each image in `sent`; () if all were `known`.

    Raises ExpansionMismatch if the sampler expands an image differently than before.
    """
    counts: tuple[int, ...] = ()
    if None in known:
        counts = tuple(expansions(sent, generated.prompt_ids, placeholder))
        for number, (before, count) in enumerate(zip(known, counts, strict=True)):
            if before not in (None, count):
                raise ExpansionMismatch(
                    f"image {number} took {before} tokens before and {count} now"
                )
    # The count is enough while the server expands images in the ids that it got. SGLang does so
    # unless SGLANG_MM_AVOID_RETOKENIZE is off; then it encodes the decoded text again, and other
    # ids
    # may have the same count.
    expected = len(sent) + sum((count or 1) - 1 for count in counts or known)
    if generated.prompt_tokens != expected:
        raise ExpansionMismatch(
            f"the prompt has {expected} tokens, the sampler counted {generated.prompt_tokens}"
        )
    return counts


def _placed(
    message: Mapping[str, Any], mark: ImageMark, *, split: bool
) -> Iterator[dict[str, str]]:
    for part in _parts(message):
        if _is_image_part(part):
            yield {"type": "image"}
            continue
        pieces = str(part["text"]).split(PLACE) if split else [str(part["text"])]
        for number, piece in enumerate(pieces):
            if number:
                yield {"type": "image"}
            if piece:
                yield {"type": "text", "text": plain(piece, mark)}


def _parts(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    content = message.get("content")
    if content is None:
        return []
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if isinstance(content, list) and all(
        isinstance(part, Mapping) and (_is_image_part(part) or "text" in part) for part in content
    ):
        return content
    raise ImagesUnplaced(
        f"a message of {message.get('role')!r} has content that is neither text nor a list of "
        'parts {"type": "text", "text": ...} and {"type": "image"}'
    )


def _is_image_part(part: Mapping[str, Any]) -> bool:
    return part.get("type") in _IMAGE_PARTS


def _texts(message: Mapping[str, Any]) -> list[str]:
    return [str(part["text"]) for part in _parts(message) if not _is_image_part(part)]


def _text_if_possible(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """A message without images as plain text: templates treat parts differently."""
    parts = message["content"]
    if any(part["type"] == "image" for part in parts):
        return message
    return {**message, "content": "".join(part["text"] for part in parts)}
