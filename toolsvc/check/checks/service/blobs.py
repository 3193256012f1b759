"""Blobs: PutBlob stores bytes, GetBlob returns them by their hash, and sessions can name them."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import grpc.aio

from toolsvc.check.check import check
from toolsvc.check.client import CheckClient, changed, refused
from toolsvc.check.connection import ANSWER_SECONDS, Refusal, ask
from toolsvc.check.probe import Kind
from toolsvc.check.types import Rule, Skipped, expect
from toolwright.common.v1 import media_pb2
from toolwright.tool.v1 import tool_pb2 as pb

if TYPE_CHECKING:
    from toolwright.tool.v1.tool_pb2_grpc import ToolServiceAsyncStub

PIECE_BYTES = 1 << 20
CONTENT = bytes(range(256)) * 6000
"""About 1.5 MiB: two pieces."""
SMALL = b"a small blob"
"""One piece. gRPC may show a refusal before the last piece as a cut stream."""


def _named(content: bytes, **changes: Any) -> media_pb2.BlobRef:
    """The reference to a blob, with `changes` a wrong one."""
    return media_pb2.BlobRef(
        **{
            "sha256": hashlib.sha256(content).hexdigest(),
            "media_type": "image/x-raw",
            "size": len(content),
            **changes,
        }
    )


def _unstored(client: CheckClient) -> media_pb2.BlobRef:
    """A blob that no service has: its content is this client's name."""
    return _named(client.owner.encode())


async def _fetch(stub: ToolServiceAsyncStub, sha256: str, offset: int = 0) -> bytes:
    """The bytes after `offset`. Raises Refusal, or CheckFailed for a piece that is too large."""
    data = b""
    try:
        request = pb.GetBlobRequest(sha256=sha256, offset=offset)
        async for piece in stub.GetBlob(request, timeout=ANSWER_SECONDS):
            expect(len(piece.data) <= PIECE_BYTES, f"a piece has {len(piece.data)} bytes")
            data += piece.data
    except grpc.aio.AioRpcError as error:
        raise Refusal.of("GetBlob", error) from error
    return data


async def _store(
    stub: ToolServiceAsyncStub, content: bytes, blob: media_pb2.BlobRef | None
) -> media_pb2.BlobRef:
    """PutBlob's answer to `content` under the name `blob`. Raises Refusal, or Skipped if the
    service does not serve PutBlob."""

    async def pieces() -> AsyncIterator[pb.PutBlobRequest]:
        for at in range(0, len(content), PIECE_BYTES):
            yield pb.PutBlobRequest(
                blob=blob if at == 0 else None, data=content[at : at + PIECE_BYTES]
            )

    try:
        answer: pb.PutBlobResponse = await stub.PutBlob(pieces(), timeout=ANSWER_SECONDS)
    except grpc.aio.AioRpcError as error:
        refusal = Refusal.of("PutBlob", error)
        if refusal.reason == "NOT_SERVED":
            raise Skipped("PutBlob is not served") from None
        raise refusal from error
    return answer.blob


@check(Rule.MEDIA)
async def an_unknown_blob_is_refused(client: CheckClient) -> None:
    """GetBlob of an unknown hash is BLOB_NOT_FOUND, or NOT_SERVED if the service has no blobs."""
    await refused(
        _fetch(client.stub, _unstored(client).sha256),
        "BLOB_NOT_FOUND",
        "NOT_SERVED",
        doing="GetBlob of an unknown hash",
    )


@check(Rule.MEDIA)
async def a_stored_blob_comes_back(client: CheckClient) -> None:
    """GetBlob returns the bytes that PutBlob stored, from any offset, in pieces of at most 1
    MiB."""
    await _store(client.stub, SMALL, _named(SMALL))
    blob = _named(CONTENT)
    stored = await _store(client.stub, CONTENT, blob)
    expect(stored.sha256 == blob.sha256, f"PutBlob stored it as {stored.sha256!r}")
    expect(stored.size == len(CONTENT), f"PutBlob stored {stored.size} of {len(CONTENT)} bytes")
    expect(await _fetch(client.stub, blob.sha256) == CONTENT, "GetBlob returned other bytes")
    half = len(CONTENT) // 2
    expect(
        await _fetch(client.stub, blob.sha256, half) == CONTENT[half:],
        "GetBlob from the middle returned other bytes",
    )


@check(Rule.MEDIA)
async def a_blob_is_what_its_hash_says(client: CheckClient) -> None:
    """PutBlob of bytes with another hash is INVALID_REQUEST and stores nothing."""
    other = _unstored(client).sha256
    await refused(
        _store(client.stub, SMALL, _named(SMALL, sha256=other)),
        "INVALID_REQUEST",
        doing="PutBlob under a wrong hash",
    )
    await refused(_fetch(client.stub, other), "BLOB_NOT_FOUND", doing="GetBlob of a refused blob")


@check(Rule.MEDIA)
async def a_blob_comes_as_it_was_named(client: CheckClient) -> None:
    """PutBlob of a stream without a name, or with fewer bytes than its name says, is
    INVALID_REQUEST and stores nothing."""
    content = client.owner.encode()
    for doing, blob in (
        ("PutBlob without a name", None),
        ("PutBlob of half a blob", _named(content, size=2 * len(content))),
    ):
        await refused(_store(client.stub, content, blob), "INVALID_REQUEST", doing=doing)
        await refused(
            _fetch(client.stub, _unstored(client).sha256),
            "BLOB_NOT_FOUND",
            doing=f"GetBlob after {doing}",
        )


@check(Rule.MEDIA)
async def a_missing_blob_is_named(client: CheckClient) -> None:
    """OpenSession with an unknown blob is BLOB_NOT_FOUND with its hash as subject, and opens no
    session. NOT_SERVED means that sessions have no blobs."""
    blob = _unstored(client)
    request = client.opening(client.subject(), blobs=[blob])
    refusal = await refused(
        client.send_opening(request),
        "BLOB_NOT_FOUND",
        "NOT_SERVED",
        doing="OpenSession with a missing blob",
    )
    if refusal.reason == "NOT_SERVED":
        raise Skipped("OpenSession.blobs is not served")
    expect(refusal.subject == blob.sha256, f"the refusal names {refusal.subject!r}, not the hash")
    closed = await ask(
        client.stub.CloseSession, pb.CloseSessionRequest(session_id=request.session_id)
    )
    expect(not closed.closed, "a session without its blob is open")


@check(Rule.MEDIA)
async def a_session_holds_its_blobs(client: CheckClient) -> None:
    """OpenSession with a stored blob opens a session, and repeated the same one. The session holds
    the blob. The same id without the blob is INVALID_REQUEST."""
    blob = _named(SMALL)
    await _store(client.stub, SMALL, blob)
    session = await client.open(blobs=[blob])
    again = await client.send_opening(session.request)
    expect(again.session_id == session.id, "a repeated OpenSession answered another session")
    expect(await _fetch(session.stub, blob.sha256) == SMALL, "GetBlob returned other bytes")
    bare = client.send_opening(changed(session.request, blobs=[]))
    await refused(bare, "INVALID_REQUEST", doing="OpenSession without the blob")


@check(Rule.MEDIA)
async def blobs_of_observations_can_be_fetched(client: CheckClient) -> None:
    """GetBlob returns the blob that an observation names, with its size and hash."""
    session = await client.open(client.subject(Kind.MEDIA))
    result = await session.call(Kind.MEDIA)
    blobs = [part.blob for part in result.observation if part.HasField("blob")]
    if not blobs:
        raise Skipped("the observation holds its media inline")
    for blob in blobs:
        data = await _fetch(session.stub, blob.sha256)
        expect(hashlib.sha256(data).hexdigest() == blob.sha256, "a blob's bytes have another hash")
        expect(len(data) == blob.size, f"a blob of {blob.size} bytes came with {len(data)}")
