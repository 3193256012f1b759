"""Messages between the service and a decoding process, over a stream socket.

A request is one JSON object; the file that it is about travels beside it as a descriptor. An answer
is one JSON object and, after it, the bytes of its pictures. Each object comes after its length.
The service trusts no answer: `parse_answer` holds it to what was asked for.
"""

from __future__ import annotations

import struct
from typing import Annotated

from pydantic import BaseModel, Field, ValidationError

from toolsvc.plugin.tool import STRICT
from toolsvc.tools.image.arguments import ImageArguments
from toolsvc.tools.image.types import MOST_FRAMES, Answer, Fault, Limits, Picture, Unusable

HEAD = struct.Struct("=I")
LONGEST = 64 * 1024
"""Bytes of one object."""

_MEDIA_TYPES = "^image/(png|jpeg)$"


class WireError(Exception):
    """The other side does not speak as it should."""


class Request(BaseModel):
    """Work on one file."""

    model_config = STRICT

    arguments: ImageArguments
    limits: Limits


class _Picture(BaseModel):
    """Of an answer, without its bytes."""

    model_config = STRICT

    length: Annotated[int, Field(ge=1)]
    media_type: Annotated[str, Field(pattern=_MEDIA_TYPES)]
    size: tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]]
    note: Annotated[str, Field(max_length=200)] = ""


class AnswerHead(BaseModel):
    """What comes before the bytes of the pictures."""

    model_config = STRICT

    pictures: Annotated[list[_Picture], Field(max_length=MOST_FRAMES)] = []
    fault: Fault | None = None
    reason: Annotated[str, Field(max_length=2000)] = ""

    @property
    def length(self) -> int:
        """Bytes of all pictures."""
        return sum(picture.length for picture in self.pictures)

    def answer(self, data: bytes) -> Answer:
        """With the pictures' bytes, one after the other."""
        if self.fault is not None:
            return Answer([], Unusable(self.fault, self.reason))
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
        return Answer(pictures)


class Greeting(BaseModel):
    """A process's first object: what confines it, or why it cannot work."""

    model_config = STRICT

    landlock_abi: int = 0
    seccomp: bool = False
    missing: str = ""
    """A package."""


def pack(message: BaseModel) -> bytes:
    """An object with its length."""
    body = message.model_dump_json().encode()
    return HEAD.pack(len(body)) + body


def pack_answer(answer: Answer) -> list[bytes]:
    """An answer's pieces, in order."""
    if answer.unusable is not None:
        fault = answer.unusable
        return [pack(AnswerHead(fault=fault.fault, reason=fault.reason[:2000]))]
    pictures = [
        _Picture(length=len(one.data), media_type=one.media_type, size=one.size, note=one.note)
        for one in answer.pictures
    ]
    return [pack(AnswerHead(pictures=pictures)), *(one.data for one in answer.pictures)]


def length_in(head: bytes) -> int:
    """Of the object that follows. WireError if it is too long."""
    (found,) = HEAD.unpack(head)
    if found > LONGEST:
        raise WireError(f"an object of {found} bytes; at most {LONGEST}")
    return int(found)


def parse_answer(body: bytes, long_side: int) -> AnswerHead:
    """WireError if it is no answer, or one with more than results can have."""
    try:
        head = AnswerHead.model_validate_json(body)
    except ValidationError as error:
        raise WireError(f"no answer: {error}") from error
    if any(max(one.size) > long_side for one in head.pictures):
        raise WireError(f"a picture larger than {long_side} pixels")
    if any(one.length > most_bytes(long_side) for one in head.pictures):
        raise WireError("a picture with more bytes than it can have")
    return head


def most_bytes(long_side: int) -> int:
    """That an encoded result can have: a PNG of noise is its pixels and a little more."""
    return long_side * long_side * 3 * 11 // 10 + 64 * 1024
