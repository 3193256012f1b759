"""A simple client for a terminal or another agent: one call after the other.

Trajectories use `engine.core.tools`, which also retries and keeps leases.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import grpc.aio

from toolsvc.types import Media, Text
from toolwright import wire
from toolwright.common.v1 import media_pb2, reasons_pb2
from toolwright.rpc.channel import call as rpc
from toolwright.rpc.channel import open_channel
from toolwright.rpc.errors import ServiceError, TransportError
from toolwright.rpc.options import LONGEST_WAIT
from toolwright.rpc.tls import Certificate
from toolwright.rpc.tool_service import blob_pieces, read_blob, stub_on
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.tool.v1 import tool_pb2_grpc

OWNER = "toolsvc"
LEASE_SECONDS = 600.0
_ANSWER_SECONDS = 10.0
_BLOB_SECONDS = 300.0


class Client:
    """Async context manager. Its methods raise ServiceError and TransportError."""

    def __init__(
        self,
        address: str,
        token: str = "",
        authority: bytes | None = None,
        identity: Certificate | None = None,
    ) -> None:
        """Arguments as for `toolwright.rpc.channel.open_channel`."""
        self._address = address
        self._how = (token, authority, identity)
        self._channels: list[grpc.aio.Channel] = []

    async def __aenter__(self) -> Client:
        # Made here, because a channel belongs to the event loop that runs at its creation.
        self._channels.append(open_channel(self._address, *self._how))
        return self

    async def __aexit__(self, *_: object) -> None:
        for channel in self._channels:
            await channel.close()

    async def list_tools(self) -> pb.ListToolsResponse:
        return await rpc(
            stub_on(self._channels[0]).ListTools, pb.ListToolsRequest(), timeout=_ANSWER_SECONDS
        )

    async def open(
        self,
        tools: Sequence[str],
        metadata: Mapping[str, Any],
        session_id: str = "",
        *,
        media: Iterable[Media] = (),
        lease: float = LEASE_SECONDS,
        shared: bool = False,
    ) -> OpenedSession:
        """Opens a session with these tools (all tools if `tools` is empty) and the task's `media`.
        Only media that the service lacks are sent. An open session with this id is reused.
        `shared`: other clients call in it too, now or later, so no result is acknowledged."""
        session_id = session_id or f"call-{uuid.uuid4().hex}"
        blobs = {(blob := reference(one)).sha256: (blob, one.data) for one in media}
        request = pb.OpenSessionRequest(
            session_id=session_id,
            owner=f"{OWNER} {session_id}",
            lease=wire.duration(lease),
            tools=tools,
            metadata=wire.struct(metadata),
            metadata_json=wire.exact_json(metadata),
            blobs=[blob for blob, _ in blobs.values()],
        )
        stub = stub_on(self._channels[0])
        while True:
            try:
                opened = await rpc(
                    stub.OpenSession, request, timeout=LONGEST_WAIT + _ANSWER_SECONDS
                )
                break
            except ServiceError as error:
                missing = error.reason == reasons_pb2.ERROR_REASON_BLOB_NOT_FOUND
                if not missing or error.subject not in blobs:
                    raise
                pieces = blob_pieces(*blobs.pop(error.subject))
                await rpc(stub.PutBlob, pieces, timeout=_BLOB_SECONDS)
        if opened.endpoint:
            self._channels.append(open_channel(opened.endpoint, *self._how))
        return OpenedSession(stub_on(self._channels[-1]), opened, shared=shared)


class OpenedSession:
    """An open session, at the endpoint that holds it."""

    def __init__(
        self,
        stub: tool_pb2_grpc.ToolServiceAsyncStub,
        opened: pb.OpenSessionResponse,
        *,
        shared: bool,
    ) -> None:
        self._stub = stub
        self.id = opened.session_id
        self.tools = {tool.name: tool for tool in opened.tools}
        self._turns: Iterator[int] = itertools.repeat(0) if shared else itertools.count()
        self._turn = 0
        self._in_flight = 0

    async def call(
        self,
        tool: str,
        action: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        run_limit: float | None = None,
    ) -> pb.CallResult:
        """The result, however long it takes. For a tool between tags `action` may be the body
        alone. If the caller is cancelled, the call is cancelled."""
        action = _whole(self.tools[tool], action)
        if not self._in_flight:  # all results have come: the service need not hold them
            self._turn = next(self._turns)
        request = pb.CallToolRequest(
            session_id=self.id,
            call_id=uuid.uuid4().hex,
            turn=self._turn,
            tool=tool,
            action=action,
            arguments=None if arguments is None else wire.struct(arguments),
            arguments_json=wire.exact_json(arguments),
            run_limit=None if run_limit is None else wire.duration(run_limit),
            wait=wire.duration(LONGEST_WAIT),
        )
        self._in_flight += 1
        try:
            while True:
                answer: pb.CallToolResponse = await rpc(
                    self._stub.CallTool, request, timeout=LONGEST_WAIT + _ANSWER_SECONDS
                )
                if answer.HasField("result"):
                    return answer.result
        except asyncio.CancelledError:
            await asyncio.shield(self._cancel(request.call_id))
            raise
        finally:
            self._in_flight -= 1

    async def renew(self, lease: float) -> None:
        """Renews the lease: the session ends after `lease` seconds without another renewal."""
        request = pb.RenewLeasesRequest(owner=f"{OWNER} {self.id}", lease=wire.duration(lease))
        await rpc(self._stub.RenewLeases, request, timeout=_ANSWER_SECONDS)

    async def blob(self, sha256: str) -> bytes:
        """Media that were too large to travel inside an observation."""
        return await read_blob(self._stub, sha256, timeout=LONGEST_WAIT)

    async def parts(self, result: pb.CallResult) -> list[Text | Media]:
        """Observation of a result. Media that are too large to travel in it are fetched."""
        found: list[Text | Media] = []
        for part in result.observation:
            kind = part.WhichOneof("content")
            if kind == "media":
                found.append(Media(media_type=part.media.media_type, data=part.media.data))
            elif kind == "blob":
                data = await self.blob(part.blob.sha256)
                found.append(Media(media_type=part.blob.media_type, data=data))
            else:
                found.append(Text(text=part.text))
        return found

    async def close(self) -> None:
        request = pb.CloseSessionRequest(session_id=self.id)
        await rpc(self._stub.CloseSession, request, timeout=LONGEST_WAIT)

    async def _cancel(self, call_id: str) -> None:
        request = pb.CancelCallRequest(session_id=self.id, call_id=call_id)
        with contextlib.suppress(ServiceError, TransportError):  # its run limit stops it then
            await rpc(self._stub.CancelCall, request, timeout=_ANSWER_SECONDS)


def reference(media: Media) -> media_pb2.BlobRef:
    return media_pb2.BlobRef(
        sha256=hashlib.sha256(media.data).hexdigest(),
        media_type=media.media_type,
        size=len(media.data),
    )


def _whole(tool: pb.ToolDescriptor, action: str) -> str:
    """The action between the tool's tags, if it is a body without marks."""
    form = tool.action_format
    opening, closing = form.tag.open, form.tag.close
    if not form.HasField("tag"):  # some read their own tag beside other forms
        opening, closing = f"<{tool.name}>", f"</{tool.name}>"
        if closing not in tool.stop_strings:
            return action
    if any(mark in action for mark in (closing, *tool.stop_strings)):
        return action
    return f"{opening}{action}{closing}"
