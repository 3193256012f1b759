"""Requests of the service to a decoding process, and the answers.

A request is one JSON object. An answer is the length of one, the object, and then the bytes of its
pictures. The service trusts no answer: `read_answer` holds it to what was asked for.
"""

from __future__ import annotations

import struct
from typing import Annotated

from pydantic import BaseModel, Field, ValidationError

from toolsvc.tools.image.arguments import ImageArguments
from toolsvc.tools.image.types import (
    MOST_FRAMES,
    STRICT,
    ImageAnswer,
    ImageFault,
    ImageLimits,
    Picture,
    UnusableFile,
)

LONGEST = 64 * 1024
"""Bytes of one object."""
_LENGTH = struct.Struct("=I")

_MEDIA_TYPES = "^image/(png|jpeg)$"


class NoAnswer(Exception):
    """The answer breaks the protocol."""


class ImageRequest(BaseModel):
    """Work on one file."""

    model_config = STRICT

    arguments: ImageArguments
    limits: ImageLimits


class _Picture(BaseModel):
    """One picture of an answer, without its bytes."""

    model_config = STRICT

    length: Annotated[int, Field(ge=1)]
    media_type: Annotated[str, Field(pattern=_MEDIA_TYPES)]
    size: tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]]
    note: Annotated[str, Field(max_length=200)] = ""


class AnswerHead(BaseModel):
    """Head of an answer, before the bytes of the pictures."""

    model_config = STRICT

    pictures: Annotated[list[_Picture], Field(max_length=MOST_FRAMES)] = []
    fault: ImageFault | None = None
    reason: Annotated[str, Field(max_length=2000)] = ""

    def answer(self, data: bytes) -> ImageAnswer:
        """The answer, with the pictures' bytes from `data`, one after the other."""
        if self.fault is not None:
            return ImageAnswer([], UnusableFile(self.fault, self.reason))
        pictures, at = [], 0
        for one in self.pictures:
            pictures.append(
                Picture(
                    data=data[at : at + one.length],
                    media_type=one.media_type,
                    size=one.size,
                    note=one.note,
                )
            )
            at += one.length
        return ImageAnswer(pictures)


def pack_answer(answer: ImageAnswer) -> bytes:
    if answer.unusable is not None:
        fault = answer.unusable
        head = AnswerHead(fault=fault.fault, reason=fault.reason[:2000])
    else:
        head = AnswerHead(
            pictures=[
                _Picture(
                    length=len(one.data), media_type=one.media_type, size=one.size, note=one.note
                )
                for one in answer.pictures
            ]
        )
    body = head.model_dump_json().encode()
    return b"".join((_LENGTH.pack(len(body)), body, *(one.data for one in answer.pictures)))


def read_answer(data: bytes, long_side: int) -> ImageAnswer:
    """Raises NoAnswer if the bytes are not an answer, or exceed the limits of results."""
    if len(data) < _LENGTH.size:
        raise NoAnswer("it ends too early")
    (length,) = _LENGTH.unpack_from(data)
    at = _LENGTH.size + length
    if length > LONGEST or at > len(data):
        raise NoAnswer(f"an object of {length} bytes")
    try:
        head = AnswerHead.model_validate_json(data[_LENGTH.size : at])
    except ValidationError as error:
        raise NoAnswer(f"no answer: {error}") from error
    if any(max(one.size) > long_side for one in head.pictures):
        raise NoAnswer(f"a picture larger than {long_side} pixels")
    if at + sum(one.length for one in head.pictures) != len(data):
        raise NoAnswer("not the bytes of its pictures")
    return head.answer(data[at:])


def most_answered(limits: ImageLimits, pictures: int) -> int:
    """Bytes of an answer with so many pictures."""
    return _LENGTH.size + LONGEST + pictures * most_bytes(limits.long_side)


def most_bytes(long_side: int) -> int:
    """Maximum size of an encoded result, in bytes: a PNG of noise is its pixels and a little
    more."""
    return long_side * long_side * 3 * 11 // 10 + 64 * 1024
