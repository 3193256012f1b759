"""Large media are held by the sessions that were told of them, within a bound."""

import hashlib

import pytest

import toolsvc.host.blobs
from toolsvc.host.blobs import INLINE_BYTES, Blobs
from toolsvc.types import Media, Result, Text
from toolwright.types import BlobRef, ToolErrorKind

LARGE = b"\x89PNG" * (INLINE_BYTES // 4 + 1)


def of(*contents: bytes) -> Result:
    media = tuple(Media(media_type="image/png", data=data) for data in contents)
    return Result(observation=(Text(text="see"), *media), done=True)


async def test_large_media_become_references_and_small_ones_stay() -> None:
    blobs = Blobs()
    taken = await blobs.take_out("s", of(LARGE, b"small"))
    text, blob, small = taken.observation
    assert text == Text(text="see")
    assert small == Media(media_type="image/png", data=b"small")
    assert isinstance(blob, BlobRef)
    assert blob.sha256 == hashlib.sha256(LARGE).hexdigest()
    assert (blob.media_type, blob.size) == ("image/png", len(LARGE))
    assert blobs.get(blob.sha256) == LARGE
    assert taken.done


async def test_a_blob_goes_with_the_last_session_that_was_told_of_it() -> None:
    blobs = Blobs()
    for session in "ab":
        await blobs.take_out(session, of(LARGE))
    assert len(blobs) == 1
    name = hashlib.sha256(LARGE).hexdigest()
    blobs.forget("a")
    assert blobs.get(name) == LARGE
    blobs.forget("b")
    assert blobs.get(name) is None
    blobs.forget("never there")


async def test_a_session_holds_its_newest_blobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolsvc.host.blobs, "SESSION_BYTES", 2 * len(LARGE) + 2)
    blobs = Blobs()
    contents = [bytes((number,)) + LARGE for number in range(3)]
    for data in (*contents[:2], contents[0], contents[2]):
        await blobs.take_out("s", of(data))
    held = [blobs.get(hashlib.sha256(data).hexdigest()) is not None for data in contents]
    assert held == [True, False, True]


async def test_media_beyond_the_bound_are_a_tool_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolsvc.host.blobs, "SESSION_BYTES", len(LARGE) - 1)
    blobs = Blobs()
    refused = await blobs.take_out("s", of(LARGE))
    assert refused.error.kind is ToolErrorKind.LIMIT
    assert len(blobs) == 0
