"""ToolService as one of several workers gives it: what is not held here goes where it belongs.

Whoever asks for a session gets it from the worker that holds it, and from then on talks to that
worker's own endpoint.

- OpenSession is passed on to the session's target, which asks workers older than itself whether
  they hold it already. A worker opens a session only if it is the target by its own view, and
  answers nothing that was asked under a newer view than its own; so two views cannot lead to two
  sessions of one id.
- CallTool, CancelCall and GetSession of a session that lives elsewhere are refused with
  WRONG_ENDPOINT, and nothing runs: passing calls on would hide for ever that the client pays for
  every one twice. So is a call of StreamCalls, whose stream reaches one worker and goes on.
- ForkSession is answered by the parent's worker, and the fork lives there, whatever its target. Its
  id must not be given to OpenSession too, which would look for it elsewhere.
- CloseSession is passed on. A restarted owner learns from RenewLeases only ids, not endpoints,
  and a close must never answer "was not open" for a session that is.
- PutBlob stores a blob at the worker that is asked; the one that opens a session with it fetches it
  from there. GetBlob finds it at any.
- RenewLeases renews the owner's sessions on all workers, whoever is asked.

A session whose worker died is SESSION_NOT_FOUND everywhere: the only one who knew it is gone.
"""

from __future__ import annotations

import asyncio
from typing import Any

from toolsvc.edge.call_stream import Asked
from toolsvc.edge.service import ToolServicer
from toolsvc.edge.wire import blob_from_proto, error_of
from toolsvc.errors import Refused
from toolsvc.host.host import Host
from toolsvc.host.refusals import opened_otherwise
from toolsvc.workers.placement import Member, View
from toolsvc.workers.siblings import Hop, Siblings, hop_of, unreachable
from toolwright.common.v1 import reasons_pb2
from toolwright.rpc.errors import ServiceError, answers_errors
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.types import BlobRef

_NO_SESSION = reasons_pb2.ERROR_REASON_SESSION_NOT_FOUND
_NO_BLOB = reasons_pb2.ERROR_REASON_BLOB_NOT_FOUND
_NO_CALL = "no-such-call"
"""Cancelling it changes nothing, and tells whether the session is there."""


class RoutedServicer(ToolServicer):
    """toolwright.tool.v1.ToolService on the `Host` of one worker."""

    def __init__(self, host: Host, name: str, siblings: Siblings) -> None:
        super().__init__(host, name)
        self._siblings = siblings

    async def CallTool(self, request: pb.CallToolRequest, context: Any) -> pb.CallToolResponse:
        if not self._host.knows(request.session_id):
            await self._refuse(request, context)
        return await super().CallTool(request, context)

    def begin_call(self, asked: Asked, request: pb.CallToolRequest) -> None:
        if self._host.knows(request.session_id) or not request.session_id:
            super().begin_call(asked, request)
        else:
            asked.work(self._begin_elsewhere(asked, request))

    @answers_errors
    async def GetSession(
        self, request: pb.GetSessionRequest, context: Any
    ) -> pb.GetSessionResponse:
        if request.session_id and not self._host.knows(request.session_id):
            await self._say_where(request.session_id, context)
        response = await super().GetSession(request, context)
        response.endpoint = self._siblings.me.endpoint
        return response

    @answers_errors
    async def ForkSession(
        self, request: pb.ForkSessionRequest, context: Any
    ) -> pb.ForkSessionResponse:
        child = request.open.session_id
        if request.session_id and not self._host.knows(request.session_id):
            await self._say_where(request.session_id, context)
        if child and not self._host.knows(child):
            try:
                await self._say_where(child, context)
            except ServiceError as error:
                if not _says(error, reasons_pb2.ERROR_REASON_WRONG_ENDPOINT):
                    raise
                raise error_of(opened_otherwise(child)) from error
        response = await super().ForkSession(request, context)
        response.session.endpoint = self._siblings.me.endpoint
        return response

    @answers_errors
    async def CancelCall(
        self, request: pb.CancelCallRequest, context: Any
    ) -> pb.CancelCallResponse:
        if not self._host.knows(request.session_id) and hop_of(context)[0] is Hop.NONE:
            await self._say_where(request.session_id, context)
        return await super().CancelCall(request, context)

    @answers_errors
    async def OpenSession(
        self, request: pb.OpenSessionRequest, context: Any
    ) -> pb.OpenSessionResponse:
        hop, epoch = hop_of(context)
        view = await self._siblings.at_least(epoch)
        while not self._host.knows(request.session_id):
            if hop is Hop.HERE:
                raise _not_found(request.session_id)
            target = view.target(request.session_id)
            if target.slot != self._siblings.slot:
                if hop is Hop.PLACE:
                    raise unreachable("the workers have changed")
                return await self._open_at(target, view, Hop.PLACE, request, context)
            found = await self._find(view, request, context)
            if found is not None:
                return found
            await self._fetch_blobs(request, context)
            if view is self._siblings.view:
                break  # Nothing is awaited between this and the host's own note of the session.
            view = self._siblings.view
        response = await super().OpenSession(request, context)
        response.endpoint = self._siblings.me.endpoint
        return response

    @answers_errors
    async def CloseSession(
        self, request: pb.CloseSessionRequest, context: Any
    ) -> pb.CloseSessionResponse:
        hop, epoch = hop_of(context)
        await self._siblings.at_least(epoch)
        here = await super().CloseSession(request, context)
        if hop is Hop.HERE or here.closed or self._host.knows(request.session_id):
            return here
        answers = [answer for _, answer in await self._ask_all("CloseSession", request, context)]
        if any(not isinstance(answer, ServiceError) and answer.closed for answer in answers):
            return pb.CloseSessionResponse(closed=True)
        _raise_first(answers)
        return here

    @answers_errors
    async def RenewLeases(
        self, request: pb.RenewLeasesRequest, context: Any
    ) -> pb.RenewLeasesResponse:
        hop, epoch = hop_of(context)
        await self._siblings.at_least(epoch)
        here = await super().RenewLeases(request, context)
        if hop is Hop.HERE:
            return here
        held = list(here.held)
        for _, answer in await self._ask_all("RenewLeases", request, context):
            if isinstance(answer, ServiceError):
                # Its sessions may well live: to call them lost would end them for nothing.
                raise answer
            held += answer.held
        lost = set(request.session_ids).difference(held)
        return pb.RenewLeasesResponse(
            held=held, lost=[name for name in request.session_ids if name in lost]
        )

    async def blob(self, sha256: str, context: Any) -> bytes:
        try:
            return await super().blob(sha256, context)
        except ServiceError as error:
            if hop_of(context)[0] is Hop.HERE or not _says(error, _NO_BLOB):
                raise
            not_here = error
        await self._siblings.at_least(1)
        for member in self._siblings.others:
            try:
                return b"".join(
                    [piece async for piece in self._siblings.blob(member, sha256, context)]
                )
            except ServiceError as error:
                if not _says(error, _NO_BLOB):
                    raise
        raise not_here

    async def _fetch_blobs(self, request: pb.OpenSessionRequest, context: Any) -> None:
        """Blobs that the session needs and a sibling was sent. What nobody has, the host misses."""
        for wanted in request.blobs:
            for member in self._siblings.others:
                if self._host.has_task_blob(wanted.sha256):
                    break
                await self._fetch_blob(member, blob_from_proto(wanted), context)

    async def _fetch_blob(self, member: Member, blob: BlobRef, context: Any) -> None:
        pieces = self._siblings.blob(member, blob.sha256, context)
        try:
            first = await anext(pieces, b"")
            with self._host.take_in(blob) as upload:
                await upload.add(first)
                async for piece in pieces:
                    await upload.add(piece)
                await upload.finish()
        except Refused as refusal:
            raise error_of(refusal) from refusal
        except ServiceError as error:
            if not _says(error, _NO_BLOB):
                raise

    async def _find(
        self, view: View, request: pb.OpenSessionRequest, context: Any
    ) -> pb.OpenSessionResponse | None:
        """The session as an older worker has it."""
        for elder in view.elders(request.session_id):
            try:
                return await self._open_at(elder, view, Hop.HERE, request, context)
            except ServiceError as error:
                if not _says(error, _NO_SESSION):
                    raise
        return None

    @answers_errors
    async def _refuse(self, request: pb.CallToolRequest, context: Any) -> None:
        """Apart from CallTool, so that a call of a session which is here is wrapped once."""
        await self._say_where(request.session_id, context)

    async def _begin_elsewhere(self, asked: Asked, request: pb.CallToolRequest) -> None:
        """A call of a stream whose session is not known here."""
        await self._say_where(request.session_id, asked.context)
        super().begin_call(asked, request)

    async def _say_where(self, name: str, context: Any) -> None:
        """Says where the session is, or what its worker says of it, as a ServiceError. Returns if
        nobody has it, so that this worker may say so."""
        await self._siblings.at_least(1)
        probe = pb.CancelCallRequest(session_id=name, call_id=_NO_CALL)
        answers = await self._ask_all("CancelCall", probe, context)
        for member, answer in answers:
            if not isinstance(answer, ServiceError):
                raise ServiceError(
                    reasons_pb2.ERROR_REASON_WRONG_ENDPOINT,
                    f"session {name} is held at {member.endpoint}",
                    subject=name,
                    endpoint=member.endpoint,
                    mend="send it there, as the answer to OpenSession says",
                )
        _raise_first([answer for _, answer in answers if not _says(answer, _NO_SESSION)])

    async def _open_at(
        self, member: Member, view: View, hop: Hop, request: pb.OpenSessionRequest, context: Any
    ) -> pb.OpenSessionResponse:
        answer: pb.OpenSessionResponse = await self._siblings.ask(
            member, "OpenSession", request, context, hop, view.epoch
        )
        return answer

    async def _ask_all(
        self, method: str, request: Any, context: Any
    ) -> list[tuple[Member, Any | ServiceError]]:
        """What each of the siblings answers."""
        view, others = self._siblings.view, self._siblings.others

        async def answer(member: Member) -> Any | ServiceError:
            try:
                return await self._siblings.ask(
                    member, method, request, context, Hop.HERE, view.epoch
                )
            except ServiceError as error:
                return error

        return list(zip(others, await asyncio.gather(*map(answer, others)), strict=True))


def _says(answer: object, reason: int) -> bool:
    return isinstance(answer, ServiceError) and answer.reason == reason


def _raise_first(answers: list[Any | ServiceError]) -> None:
    for answer in answers:
        if isinstance(answer, ServiceError):
            raise answer


def _not_found(session_id: str) -> ServiceError:
    return ServiceError(
        _NO_SESSION,
        f"session {session_id} is not known here",
        subject=session_id,
    )
