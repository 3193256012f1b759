"""Sizes, media and hostile input, broken."""

from __future__ import annotations

import asyncio
import hashlib
import json
import posixpath
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Any

from google.protobuf.unknown_fields import UnknownFieldSet

from tests.support.conformance.broken.registry import broken
from tests.support.conformance.reference import Call, Reference, ReferenceSession, refusal
from tests.support.conformance.reference.tools import PHOTO
from toolsvc.check.types import Rule
from toolwright import wire
from toolwright.common.v1 import media_pb2
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.tool.v1 import tool_pb2 as pb


class _Results(Reference):
    """Changes what tools answer."""

    async def run(self, *given: Any) -> pb.CallResult:
        result = await super().run(*given)
        self.change(result)
        return result

    def change(self, result: pb.CallResult) -> None:
        raise NotImplementedError


@broken(Rule.LIMIT, "large-messages-are-taken")
class SmallMessages(Reference):
    """Leaves gRPC's own limit of 4 MiB."""

    message_bytes = 4 << 20


@broken(Rule.LIMIT, "parts-are-small")
class LargeParts(_Results):
    """Answers a long text in one part."""

    def change(self, result: pb.CallResult) -> None:
        for part in result.observation:
            if result.truncated:
                part.text += part.text


@broken(Rule.LIMIT, "what-was-cut-is-said-to-be")
class CutsInSilence(_Results):
    """Does not say that it cut an observation."""

    def change(self, result: pb.CallResult) -> None:
        result.truncated = False


@broken(Rule.MEDIA, "media-have-a-type")
class UntypedMedia(_Results):
    """Does not say what its media are."""

    def change(self, result: pb.CallResult) -> None:
        for part in result.observation:
            if part.HasField("media"):
                part.media.media_type = "picture"


@broken(Rule.MEDIA, "inline-media-are-small")
class LargeMedia(_Results):
    """Answers large media inline."""

    def change(self, result: pb.CallResult) -> None:
        for part in result.observation:
            if part.HasField("blob"):
                media_type = part.blob.media_type
                part.media.CopyFrom(pb.InlineMedia(media_type=media_type, data=PHOTO))


@broken(Rule.MEDIA, "media-come-again")
class NewMediaEachTime(_Results):
    """Draws anew for each request of one call."""

    def known(self, session: ReferenceSession, request: pb.CallToolRequest) -> Call | None:
        return None if request.tool == "draw" else super().known(session, request)

    def change(self, result: pb.CallResult) -> None:
        for part in result.observation:
            if part.HasField("media"):
                part.media.data = uuid.uuid4().bytes


@broken(Rule.MEDIA, "blobs-of-observations-can-be-fetched")
class NamesLostBlobs(Reference):
    """Names blobs in observations that it does not have."""

    def __init__(self) -> None:
        super().__init__()
        self.blobs.clear()


@broken(Rule.MEDIA, "an-unknown-blob-is-refused")
class EmptyBlobs(Reference):
    """Gives no bytes for a hash that it does not know."""

    async def GetBlob(self, request: Any, context: Any) -> AsyncIterator[pb.GetBlobResponse]:
        yield pb.GetBlobResponse(data=self.blobs.get(request.sha256, b"")[request.offset :])


@broken(Rule.MEDIA, "a-stored-blob-comes-back")
class ShortBlobs(Reference):
    """Stores the first piece of a blob."""

    def put_blob(self, pieces: Sequence[pb.PutBlobRequest]) -> pb.PutBlobResponse:
        answer = super().put_blob(pieces)
        self.blobs[answer.blob.sha256] = pieces[0].data
        return answer


@broken(Rule.MEDIA, "a-blob-is-what-its-hash-says")
class BelievesHashes(Reference):
    """Stores bytes under whatever hash they came with."""

    def put_blob(self, pieces: Sequence[pb.PutBlobRequest]) -> pb.PutBlobResponse:
        blob = pieces[0].blob
        self.blobs[blob.sha256] = b"".join(piece.data for piece in pieces)
        return pb.PutBlobResponse(blob=blob)


@broken(Rule.MEDIA, "a-blob-comes-as-it-was-named")
class TakesWhatComes(Reference):
    """Stores what came of a blob, whatever its name says."""

    def put_blob(self, pieces: Sequence[pb.PutBlobRequest]) -> pb.PutBlobResponse:
        content = b"".join(piece.data for piece in pieces)
        blob = media_pb2.BlobRef(sha256=hashlib.sha256(content).hexdigest(), size=len(content))
        self.blobs[blob.sha256] = content
        return pb.PutBlobResponse(blob=blob)


@broken(Rule.MEDIA, "a-missing-blob-is-named")
class OpensWithoutBlobs(Reference):
    """Opens sessions without the blobs that they need."""

    def look_for_blobs(self, request: pb.OpenSessionRequest) -> None:
        """Does not."""


@broken(Rule.MEDIA, "a-session-holds-its-blobs")
class UsesBlobsUp(Reference):
    """Forgets a blob once a session was opened with it."""

    async def open(self, request: pb.OpenSessionRequest) -> pb.OpenSessionResponse:
        opened = await super().open(request)
        for blob in request.blobs:
            del self.blobs[blob.sha256]
        return opened


@broken(Rule.REASONS, "a-missing-field-is-named")
class TakesAnything(Reference):
    """Takes requests without their ids."""

    def require(self, request: Any, name: str) -> None:
        """Does not."""


class _Choosy(Reference):
    """Falls over requests that it cannot stand."""

    async def call(self, request: pb.CallToolRequest) -> pb.CallToolResponse:
        if self.dislikes(request):
            raise refusal(reasons.ERROR_REASON_INTERNAL, "a fault of the service", "")
        return await super().call(request)

    def dislikes(self, request: pb.CallToolRequest) -> bool:
        raise NotImplementedError


@broken(Rule.INPUT, "an-empty-action-is-an-answer")
class FallsOverNothing(_Choosy):
    """Cannot stand an empty action."""

    def dislikes(self, request: pb.CallToolRequest) -> bool:
        return not request.action


@broken(Rule.INPUT, "a-huge-action-harms-nobody")
class FallsOverMuch(_Choosy):
    """Cannot stand a large action."""

    def dislikes(self, request: pb.CallToolRequest) -> bool:
        return len(request.action) > 64 << 10


@broken(Rule.INPUT, "hostile-text-harms-nobody")
class FallsOverControls(_Choosy):
    """Cannot stand marks of direction."""

    def dislikes(self, request: pb.CallToolRequest) -> bool:
        return "\u202e" in request.action or "\\u202e" in request.action


@broken(Rule.INPUT, "any-metadata-are-taken")
class FallsOverNumbers(_Choosy):
    """Cannot stand numbers that JSON does not have."""

    def dislikes(self, request: pb.CallToolRequest) -> bool:
        try:
            json.dumps(wire.mapping(request.metadata), allow_nan=False)
        except ValueError:
            return True
        return False


@broken(Rule.INPUT, "a-hostile-action-is-an-answer")
class FallsOverDepth(_Choosy):
    """Cannot stand lists inside of lists."""

    def dislikes(self, request: pb.CallToolRequest) -> bool:
        return "[" * 60 in request.action


@broken(Rule.INPUT, "a-hostile-action-is-an-answer")
class FallsOverDigits(_Choosy):
    """Cannot stand integers that its parser does not convert."""

    def dislikes(self, request: pb.CallToolRequest) -> bool:
        return "9" * 5000 in request.action


@broken(Rule.INPUT, "a-hostile-action-is-an-answer")
class FallsOverHalves(_Choosy):
    """Cannot stand half a surrogate pair."""

    def dislikes(self, request: pb.CallToolRequest) -> bool:
        return "\\ud83d" in request.action


@broken(Rule.INPUT, "arguments-that-cannot-be-read-are-an-answer")
class RefusesArguments(Reference):
    """Takes arguments that are no JSON for a fault of its client."""

    async def call(self, request: pb.CallToolRequest) -> pb.CallToolResponse:
        try:
            wire.mapping(request.arguments, request.arguments_json)
        except ValueError as error:
            reason = reasons.ERROR_REASON_INVALID_REQUEST
            raise refusal(reason, str(error), "arguments_json") from error
        return await super().call(request)


@broken(Rule.INPUT, "a-long-hostile-action-keeps-nobody-waiting")
class Broods(Reference):
    """Answers brackets at once, and nobody else for a long while."""

    def __init__(self) -> None:
        super().__init__()
        self._until = 0.0

    async def perform(self, session: ReferenceSession, call: Call) -> pb.CallResult:
        now = time.monotonic()
        if "[" * 100_000 in call.request.action:
            self._until = now + 30
        elif now < self._until:
            await asyncio.sleep(self._until - now)
        return await super().perform(session, call)


@broken(Rule.INPUT, "text-of-every-language-comes-back")
class AsciiAlone(_Results):
    """Answers in ASCII."""

    def change(self, result: pb.CallResult) -> None:
        for part in result.observation:
            if part.HasField("text"):
                part.text = part.text.encode("ascii", "replace").decode()


@broken(Rule.INPUT, "strange-ids-are-taken")
class TidiesIds(Reference):
    """Takes session ids for paths."""

    async def open(self, request: pb.OpenSessionRequest) -> pb.OpenSessionResponse:
        request.session_id = posixpath.normpath(request.session_id)
        return await super().open(request)


@broken(Rule.INPUT, "unknown-fields-are-ignored")
class RefusesTheUnknown(Reference):
    """Refuses requests of a later version of the contract."""

    async def call(self, request: pb.CallToolRequest) -> pb.CallToolResponse:
        if len(UnknownFieldSet(request)):
            raise refusal(reasons.ERROR_REASON_INVALID_REQUEST, "an unknown field", "field")
        return await super().call(request)
