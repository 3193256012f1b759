"""Media of tasks: checked as they come in, held for sessions, within a room."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from toolsvc.errors import Reason, Refused
from toolsvc.host.task_blobs import BLOB_BYTES, LEAST_BYTES, UNCLAIMED_SECONDS, TaskBlobs
from toolsvc.types import Media
from toolwright.rpc.options import PIECE_BYTES
from toolwright.types import BlobRef

ROOM = 8 * LEAST_BYTES


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@contextmanager
def refused(reason: Reason, subject: str) -> Iterator[None]:
    with pytest.raises(Refused) as failure:
        yield
    assert (failure.value.reason, failure.value.subject) == (reason, subject)


def ref(data: bytes, **changes: object) -> BlobRef:
    fields = {"sha256": hashlib.sha256(data).hexdigest(), "media_type": "image/png"}
    return BlobRef(**{**fields, "size": len(data), **changes})  # type: ignore[arg-type]


async def send(blobs: TaskBlobs, data: bytes, named: BlobRef | None = None, piece: int = 7) -> None:
    with blobs.take_in(named or ref(data)) as upload:
        for at in range(0, len(data), piece):
            await upload.add(data[at : at + piece])
        await upload.finish()


def many(number: int, size: int = LEAST_BYTES) -> list[bytes]:
    return [bytes((index,)) * size for index in range(number)]


async def test_a_session_gets_what_was_sent_in_the_order_of_its_wish() -> None:
    blobs = TaskBlobs()
    for data in (b"first", b"second", b""):
        await send(blobs, data)
    wanted = [ref(b"second"), ref(b""), ref(b"first", media_type="video/mp4"), ref(b"second")]
    claimed = blobs.claim("s", wanted)
    assert list(claimed) == [blob.sha256 for blob in wanted[:3]]
    assert claimed[wanted[0].sha256] == Media(media_type="image/png", data=b"second")
    assert claimed[wanted[2].sha256].media_type == "video/mp4"
    assert blobs.get(wanted[2].sha256) == b"first"


@pytest.mark.parametrize(
    ("named", "subject"),
    [
        (ref(b"data", sha256=hashlib.sha256(b"other").hexdigest()), "sha256"),
        (ref(b"data", sha256="ABC"), "sha256"),
        (ref(b"data", sha256=ref(b"data").sha256.upper()), "sha256"),
        (ref(b"data", size=3), "size"),
        (ref(b"data", size=5), "size"),
        (ref(b"data", size=BLOB_BYTES + 1), "size"),
    ],
)
async def test_what_is_not_as_it_was_named_leaves_nothing(named: BlobRef, subject: str) -> None:
    blobs = TaskBlobs()
    with refused(Reason.INVALID_REQUEST, subject):
        await send(blobs, b"data", named)
    assert blobs.used == 0
    assert blobs.get(named.sha256) is None


async def test_a_piece_that_is_too_large_is_refused() -> None:
    data = bytes(PIECE_BYTES + 1)
    with refused(Reason.INVALID_REQUEST, "data"):
        await send(TaskBlobs(), data, piece=len(data))


async def test_a_blob_goes_with_the_last_session_that_claimed_it() -> None:
    clock = Clock()
    blobs = TaskBlobs(clock=clock)
    await send(blobs, b"shared")
    for session in "ab":
        blobs.claim(session, [ref(b"shared")])
    clock.now = UNCLAIMED_SECONDS
    blobs.expire()
    blobs.forget("a")
    assert blobs.used == LEAST_BYTES
    blobs.forget("b")
    blobs.forget("never there")
    assert blobs.used == 0


async def test_what_was_sent_again_outlives_the_session_of_another() -> None:
    clock = Clock()
    blobs = TaskBlobs(clock=clock)
    await send(blobs, b"shared")
    blobs.claim("a", [ref(b"shared")])
    clock.now = UNCLAIMED_SECONDS
    await send(blobs, b"shared")
    blobs.forget("a")
    assert blobs.claim("b", [ref(b"shared")])
    assert blobs.used == LEAST_BYTES


async def test_the_oldest_that_nobody_claims_makes_room() -> None:
    blobs = TaskBlobs(ROOM)
    contents = many(8)
    for data in contents:
        await send(blobs, data)
    blobs.claim("s", [ref(contents[0])])
    await send(blobs, contents[1])
    await send(blobs, b"new")
    gone = [data for data in contents if blobs.get(ref(data).sha256) is None]
    assert gone == [contents[2]]


async def test_claimed_blobs_and_those_on_their_way_are_never_moved_out() -> None:
    blobs = TaskBlobs(ROOM)
    contents = many(7)
    for data in contents:
        await send(blobs, data)
    blobs.claim("s", [ref(data) for data in contents])
    with blobs.take_in(ref(b"coming")), refused(Reason.TOO_MANY_SESSIONS, ref(b"new").sha256):
        await send(blobs, b"new")
    await send(blobs, b"new")
    with refused(Reason.INVALID_REQUEST, "blobs"):
        blobs.claim("t", [ref(b"x" * ROOM), ref(b"new")])


async def test_who_announces_much_and_sends_little_holds_little() -> None:
    room = 8 * BLOB_BYTES
    blobs = TaskBlobs(room)
    silent = [blobs.take_in(ref(bytes((index,)), size=BLOB_BYTES)) for index in range(100)]
    for upload in silent:
        upload.__enter__()
        await upload.add(b"x")
    assert blobs.used == 100 * LEAST_BYTES
    await send(blobs, bytes(3 * PIECE_BYTES), piece=PIECE_BYTES)
    for upload in silent:
        upload.__exit__(None, None, None)
    assert blobs.used == 3 * PIECE_BYTES


async def test_what_comes_in_never_exceeds_the_room() -> None:
    blobs = TaskBlobs(ROOM)
    claimed = many(4)
    for data in claimed:
        await send(blobs, data)
    blobs.claim("s", [ref(data) for data in claimed])
    two = [ref(bytes(3 * LEAST_BYTES)), ref(bytes(3 * LEAST_BYTES - 1))]
    with blobs.take_in(two[0]) as first, blobs.take_in(two[1]) as second:
        await first.add(bytes(2 * LEAST_BYTES))
        await second.add(bytes(2 * LEAST_BYTES))
        assert blobs.used == ROOM
        with refused(Reason.TOO_MANY_SESSIONS, two[0].sha256):
            await first.add(bytes(LEAST_BYTES))
    assert blobs.used == 4 * LEAST_BYTES
