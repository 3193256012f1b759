"""Blobs: of observations, and what sessions are opened with."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from tests.support.conformance.reference.requests import Requests, refusal
from tests.support.conformance.reference.tools import PHOTO
from toolwright.common.v1 import media_pb2
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.tool.v1 import tool_pb2 as pb


class Blobs(Requests):
    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {hashlib.sha256(PHOTO).hexdigest(): PHOTO}

    def get_blob(self, sha256: str) -> bytes:
        content = self.blobs.get(sha256)
        if content is None:
            raise refusal(reasons.ERROR_REASON_BLOB_NOT_FOUND, "no such blob", sha256)
        return content

    def put_blob(self, pieces: Sequence[pb.PutBlobRequest]) -> pb.PutBlobResponse:
        content = b"".join(piece.data for piece in pieces)
        blob = pieces[0].blob if pieces else media_pb2.BlobRef()
        if hashlib.sha256(content).hexdigest() != blob.sha256 or len(content) != blob.size:
            raise refusal(
                reasons.ERROR_REASON_INVALID_REQUEST, "the bytes are not what it names", "blob"
            )
        self.blobs[blob.sha256] = content
        return pb.PutBlobResponse(blob=blob)

    def look_for_blobs(self, request: pb.OpenSessionRequest) -> None:
        """That all which the session needs are here; these tools do nothing with them."""
        for blob in request.blobs:
            self.get_blob(blob.sha256)
