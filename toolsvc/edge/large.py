"""Large requests are converted in a thread, so that the event loop serves others meanwhile: tens of
megabytes of numbers take seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from google.protobuf.message import Message

LARGE = 1 << 16
"""Least size of a large request, in bytes; numbers of that size are converted in some 10 ms."""
Request = TypeVar("Request", bound=Message)
Words = TypeVar("Words")


def is_large(request: Message) -> bool:
    return request.ByteSize() > LARGE


async def converted(convert: Callable[[Request], Words], request: Request) -> Words:
    """`convert(request)`; raises what `convert` raises."""
    if not is_large(request):
        return convert(request)
    return await asyncio.to_thread(convert, request)
