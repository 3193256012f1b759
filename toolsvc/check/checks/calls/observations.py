"""Sizes of messages and observations, and parts that are not text."""

from __future__ import annotations

from collections.abc import Iterable

from toolsvc.check.check import check
from toolsvc.check.client import CheckClient, text_of
from toolsvc.check.probe import Kind
from toolsvc.check.types import Rule, expect
from toolwright import wire
from toolwright.tool.v1 import tool_pb2 as pb

INLINE_BYTES = 256 << 10
ABOVE_GRPC_DEFAULT = 6 << 20
"""Bytes. gRPC's own limit is 4 MiB, and a service must raise it."""


@check(Rule.LIMIT)
async def large_messages_are_taken(client: CheckClient) -> None:
    """The service accepts messages above gRPC's own limit of 4 MiB. The contract's is 64 MiB."""
    large = wire.struct({"padding": "x" * ABOVE_GRPC_DEFAULT})
    session = await client.open(metadata=large)
    await session.call()


@check(Rule.LIMIT)
async def parts_are_small(client: CheckClient) -> None:
    """A part of an observation has at most 256 KiB; a long observation is cut or a blob."""
    session = await client.open(client.subject(Kind.LONG))
    result = await session.call(Kind.LONG)
    expect(result.observation, "a long observation came back empty")
    for part in result.observation:
        size = max(len(part.text.encode()), len(part.media.data))
        expect(size <= INLINE_BYTES, f"a part of {size} bytes; the limit is {INLINE_BYTES}")


@check(Rule.LIMIT)
async def what_was_cut_is_said_to_be(client: CheckClient) -> None:
    """An observation is marked `truncated` if, and only if, the service cut it."""
    session = await client.open(client.subject(Kind.LONG))
    result = await session.call(Kind.LONG)
    size = sum(
        len(part.text) + len(part.media.data) + part.blob.size for part in result.observation
    )
    if size < 400_000:
        expect(result.truncated, f"{size} of 400,000 bytes came back, and `truncated` is not set")
    short = await session.call()
    expect(not short.truncated, "a short observation is marked `truncated`")


@check(Rule.MEDIA)
async def media_have_a_type(client: CheckClient) -> None:
    """A media part has a type like image/png and bytes; a blob has its type, size and SHA-256."""
    for part in await _media(client):
        media_type = part.media.media_type or part.blob.media_type
        kind, slash, name = media_type.partition("/")
        expect(kind and slash and name, f"a part that is not text has the type {media_type!r}")
        if part.HasField("media"):
            expect(part.media.data, "a media part holds no bytes")
        else:
            digest = part.blob.sha256
            expect(
                len(digest) == 64 and set(digest) <= set("0123456789abcdef"),
                f"a blob's sha256 is {digest!r}, not 64 lower-case hexadecimal digits",
            )
            expect(part.blob.size > 0, "a blob has no size")


@check(Rule.MEDIA)
async def inline_media_are_small(client: CheckClient) -> None:
    """Media above 256 KiB are blobs."""
    for part in await _media(client):
        size = len(part.media.data)
        expect(size <= INLINE_BYTES, f"inline media of {size} bytes; the limit is {INLINE_BYTES}")


@check(Rule.MEDIA)
async def media_are_announced(client: CheckClient) -> None:
    """A tool whose observations hold media has the capability `media`."""
    subject = client.subject(Kind.MEDIA)
    await _media(client)
    expect(
        subject.descriptor.capabilities.media,
        f"{subject.name} answers media without the capability `media`",
    )


@check(Rule.MEDIA)
async def media_come_again(client: CheckClient) -> None:
    """A repeated call answers media with the same bytes."""
    session = await client.open(client.subject(Kind.MEDIA))
    request = session.calling(Kind.MEDIA)
    first, again = await session.result(request), await session.result(request)
    expect(first.observation == again.observation, "a repeated call answered other media")


async def _media(client: CheckClient) -> Iterable[pb.ObservationPart]:
    """The parts of the media probe's observation that are not text."""
    session = await client.open(client.subject(Kind.MEDIA))
    result = await session.call(Kind.MEDIA)
    parts = [part for part in result.observation if not part.HasField("text")]
    expect(parts, f"the probe for media answered only text: {text_of(result)[:80]!r}")
    return parts
