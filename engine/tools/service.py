"""One tool service of the recipe: its tools, its sessions, its leases, at whatever endpoints.

Invariants
- A session is spoken to at the endpoint that holds it, which may be another than the service's
  address.
- What may pass is tried again, at most `max_retries` times; what is refused for good is not.
- Nothing is opened on a service of the engine's own while that is away: it is waited for, and costs
  no try.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, cast

import structlog

from engine.errors import StartupError, ToolServiceFailed
from engine.images.media import Media
from engine.tools.blobs import pieces
from engine.tools.process import ToolProcess
from engine.tools.spec import spec
from engine.types import ToolSpec
from toolwright import wire
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.recipe import Tool as ToolTable
from toolwright.rpc.channel import backoff, call, may_retry, open_channel
from toolwright.rpc.errors import ServiceError, TransportError
from toolwright.rpc.options import TOKEN_VARIABLE
from toolwright.rpc.tls import TlsError, read_authority
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.tool.v1 import tool_pb2_grpc
from toolwright.types import Task

if TYPE_CHECKING:
    from toolwright.tool.v1.tool_pb2_grpc import ToolServiceAsyncStub

OPEN_SECONDS = 60.0
REACH_SECONDS = 5.0
"""In which a service that works answers what it answers from memory."""

_MISSES = reasons.ERROR_REASON_BLOB_NOT_FOUND
_MAY_PASS = (reasons.ERROR_REASON_INTERNAL, _MISSES)
"""A fault, and media that went with a restart; the others are refusals."""

log = structlog.get_logger("tools")


@dataclass(frozen=True, slots=True, kw_only=True)
class Leases:
    """What a service told of one owner's sessions. lost: of those asked for, not there any more;
    held: all that are there."""

    lost: Set[str]
    held: Set[str]


class Service:
    """One tool service of the recipe."""

    def __init__(self, name: str, table: ToolTable, process: ToolProcess | None = None) -> None:
        """`process`: where the engine starts it itself; it is not started here."""
        self.name = name
        self.table = table
        self._process = process
        try:
            self._authority = None if table.tls_ca is None else read_authority(table.tls_ca)
        except TlsError as error:
            raise StartupError(f"tools.{name}.tls_ca: {error}") from error
        self._endpoints: dict[str, _Endpoint] = {}
        self._takes_media = False
        self._idle: set[str] = set()
        """Endpoints that held nothing at the last renewal."""

    @property
    def address(self) -> str:
        return self._process.address if self._process else self.table.service

    @property
    def stub(self) -> ToolServiceAsyncStub:
        """Of the service's own address."""
        return self.stub_at(self.address)

    async def start(self) -> None:
        """StartupError where it is the engine's to start and does not."""
        if self._process:
            await self._process.start()

    async def keep(self) -> None:
        """Starts it again whenever it has ended, if it is the engine's."""
        if self._process:
            await self._process.keep()

    async def close(self) -> None:
        for endpoint in self._endpoints.values():
            await endpoint.channel.close(None)
        if self._process:
            await self._process.stop()

    async def describe(self) -> list[ToolSpec]:
        try:
            answer = await call(self.stub.ListTools, pb.ListToolsRequest(), timeout=10)
        except (ServiceError, TransportError) as error:
            raise StartupError(
                f"tools.{self.name}: no tool service answers at {self.address} ({error}); "
                f"start one with `toolsvc serve {self.name} --listen {self.address}`"
            ) from error
        self._takes_media = any(tool.capabilities.media for tool in answer.tools)
        tools = [spec(tool, self.name) for tool in answer.tools]
        missing = set(self.table.names) - {tool.name for tool in tools}
        if missing:
            raise StartupError(
                f"tools.{self.name}: {self.table.where} has no {', '.join(sorted(missing))}; "
                f"it has {', '.join(tool.name for tool in tools)}"
            )
        wanted = self.table.names or [tool.name for tool in tools]
        return [tool for name in dict.fromkeys(wanted) for tool in tools if tool.name == name]

    async def open_session(
        self, session_id: str, owner: str, task: Task, media: Sequence[Media]
    ) -> Part:
        """The task's media go along if a tool of the service takes any; their bytes only where
        the service misses them. ToolServiceFailed or StartupError when it does not open."""
        try:
            metadata = wire.struct(task.metadata)
        except (TypeError, ValueError) as error:
            raise StartupError(
                f"task {task.id}: its metadata is not JSON-like ({error}); tools get it as it is"
            ) from error
        request = pb.OpenSessionRequest(
            session_id=session_id,
            owner=owner,
            lease=wire.duration(self.table.lease_s),
            tools=self.table.names,
            metadata=metadata,
            queue_limit=wire.duration(self.table.queue_limit_s),
            blobs=[wire.blob_to_proto(one.blob) for one in media if self._takes_media],
        )
        return Part(self, await self._open(request, {one.blob.sha256: one for one in media}))

    async def _open(
        self, request: pb.OpenSessionRequest, media: dict[str, Media]
    ) -> pb.OpenSessionResponse:
        """`media` by hash; a service is sent each at most once."""
        deadline = self.table.queue_limit_s + OPEN_SECONDS
        for attempt in range(self.table.max_retries + 1):
            try:
                return await self._open_once(request, media, deadline)
            except (ServiceError, TransportError) as error:
                if attempt == self.table.max_retries or not may_retry(error):
                    refusal = isinstance(error, ServiceError) and error.reason not in _MAY_PASS
                    permanent = refusal and not may_retry(error)
                    raise ToolServiceFailed(
                        f"tools.{self.name}: {error}", permanent=permanent
                    ) from error
                await asyncio.sleep(backoff(attempt, error))
        raise AssertionError("unreachable")

    async def _open_once(
        self, request: pb.OpenSessionRequest, media: dict[str, Media], deadline: float
    ) -> pb.OpenSessionResponse:
        # The channel to a service that is back may still be between two tries to connect.
        open_there = partial(self.stub.OpenSession, wait_for_ready=self._process is not None)
        while True:
            if self._process:
                await self._process.serving()
            try:
                return await call(open_there, request, timeout=deadline)
            except ServiceError as error:
                if error.reason != _MISSES or error.subject not in media:
                    raise
                missing = media.pop(error.subject)
            await call(self.stub.PutBlob, pieces(missing), timeout=OPEN_SECONDS)

    async def close_session(self, session_id: str, endpoint: str) -> None:
        request = pb.CloseSessionRequest(session_id=session_id)
        try:
            await call(self.stub_at(endpoint).CloseSession, request, timeout=30)
        except (ServiceError, TransportError) as error:
            log.info("close_failed", session=session_id, service=self.name, error=str(error))

    async def renew(self, owner: str, placed: Mapping[str, str]) -> Leases:
        """Renews `owner`'s leases at the service's address and at every endpoint that holds one
        of the sessions `placed`, id to endpoint. Of the sessions of an endpoint that is silent the
        service's address is asked: a worker that died says nothing, the others know."""
        believed: dict[str, list[str]] = {self.address: []}
        for session_id, endpoint in placed.items():
            believed.setdefault(endpoint, []).append(session_id)
        answers = await asyncio.gather(
            *(self._renew_at(endpoint, owner, believed[endpoint]) for endpoint in believed)
        )
        heard = dict(zip(believed, answers, strict=True))
        silent = [endpoint for endpoint, answer in heard.items() if answer is None]
        unheard = [name for endpoint in silent for name in believed[endpoint]]
        if unheard and heard[self.address] is not None:
            answers.append(await self._renew_at(self.address, owner, unheard))
        await self._forget_idle(self._endpoints.keys() - believed)
        return Leases(
            lost={name for answer in answers if answer for name in answer.lost},
            held={name for answer in answers if answer for name in answer.held},
        )

    async def _renew_at(
        self, endpoint: str, owner: str, believed: list[str]
    ) -> pb.RenewLeasesResponse | None:
        """What it answers; None where it does not."""
        request = pb.RenewLeasesRequest(
            owner=owner, lease=wire.duration(self.table.lease_s), session_ids=believed
        )
        try:
            return await call(self.stub_at(endpoint).RenewLeases, request, timeout=10)
        except (ServiceError, TransportError) as error:
            log.warning("lease_renewal_failed", endpoint=endpoint, error=str(error))
            return None

    async def close_everywhere(self, session_id: str) -> None:
        """For a session of which it is not known where it is."""
        for endpoint in list(self._endpoints):
            await self.close_session(session_id, endpoint)

    async def _forget_idle(self, idle: set[str]) -> None:
        """Workers come and go, each with an endpoint of its own. One is kept for a second renewal,
        since a session's close may still be under way there."""
        for address in idle & self._idle:
            await self._endpoints.pop(address).channel.close(None)
        self._idle = idle

    def stub_at(self, address: str) -> ToolServiceAsyncStub:
        endpoint = self._endpoints.get(address)
        if endpoint is None:
            endpoint = self._endpoints[address] = _Endpoint(address, self._authority)
        return endpoint.stub


class _Endpoint:
    """A channel to one process of a service."""

    def __init__(self, address: str, authority: bytes | None) -> None:
        self.channel = open_channel(address, os.environ.get(TOKEN_VARIABLE, ""), authority)
        self.stub = cast("ToolServiceAsyncStub", tool_pb2_grpc.ToolServiceStub(self.channel))


class Part:
    """A session on one service, at the endpoint that holds it."""

    def __init__(self, service: Service, opened: pb.OpenSessionResponse) -> None:
        self.service = service
        self.session_id = opened.session_id
        self.endpoint = opened.endpoint or service.address
        self.tools = [spec(tool, service.name) for tool in opened.tools]
        self.cancels = any(tool.capabilities.cancel for tool in opened.tools)

    @property
    def name(self) -> str:
        return self.service.name

    @property
    def table(self) -> ToolTable:
        return self.service.table

    @property
    def stub(self) -> ToolServiceAsyncStub:
        return self.service.stub_at(self.endpoint)

    def gain(self, tools: Sequence[ToolSpec]) -> None:
        """The session has more tools from here on."""
        known = {tool.name for tool in self.tools}
        self.tools += [tool for tool in tools if tool.name not in known]

    async def check_reach(self) -> None:
        """ToolServiceFailed when nobody answers at the endpoint."""
        try:
            await call(self.stub.ListTools, pb.ListToolsRequest(), timeout=REACH_SECONDS)
        except (ServiceError, TransportError) as error:
            raise ToolServiceFailed(
                f"tools.{self.name}: {self.endpoint} did not answer when the trajectory's time "
                f"was up ({error})"
            ) from error

    def move(self, endpoint: str) -> None:
        log.info("session_moved", session=self.session_id, endpoint=endpoint)
        self.endpoint = endpoint
