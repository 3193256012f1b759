"""A member's tokens as bytes, so that comparisons run at the speed of memory."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Any
from zlib import crc32

from bench.history.events import Member

WIDTH = array("i").itemsize
"""Bytes of one token id."""


def packed(token_ids: Iterable[int]) -> bytes:
    """Token ids as bytes, WIDTH a token."""
    return (token_ids if isinstance(token_ids, array) else array("i", token_ids)).tobytes()


def checksum(parts: Iterable[Iterable[int]]) -> int:
    """CRC-32 of the token ids of all parts."""
    return crc32(b"".join(packed(part) for part in parts))


def content_of(member: Member) -> tuple[Any, ...]:
    """All of a member that no lease may change; hashable."""
    segments = tuple(
        (one.author, one.turn, one.version, packed(one.token_ids)) for one in member.segments
    )
    return member.trajectory, member.masked, member.calls, segments


def common_tokens(one: bytes, other: bytes) -> int:
    """Tokens at the start of both that are equal."""
    most = min(len(one), len(other)) // WIDTH
    if one[: most * WIDTH] == other[: most * WIDTH]:
        return most
    equal, unequal = 0, most
    while unequal - equal > 1:
        middle = (equal + unequal) // 2
        if one[equal * WIDTH : middle * WIDTH] == other[equal * WIDTH : middle * WIDTH]:
            equal = middle
        else:
            unequal = middle
    return equal
