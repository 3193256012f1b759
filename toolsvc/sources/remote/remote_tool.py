"""`grpc:ADDRESS`: the tools of another service, in whatever language it is written.

The other service defines their actions and answers: an action that this service cannot read is
passed on unchanged.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, Field

from toolsvc.errors import StartError
from toolsvc.plugin.actions import UNREAD
from toolsvc.plugin.tool import STRICT, Cancellation, Tool
from toolsvc.sandbox.config import SandboxConfig
from toolsvc.sources.elsewhere import Source
from toolsvc.sources.remote.service import RemoteService
from toolsvc.sources.remote.session import RemoteSession
from toolsvc.sources.remote.wire import descriptor_from_proto
from toolsvc.sources.shared import StandIn
from toolsvc.types import Call, Descriptor, RawFormat, Result, SessionInfo
from toolwright.rpc.options import TOKEN_VARIABLE
from toolwright.rpc.tls import TlsError, read_authority
from toolwright.tool.v1 import tool_pb2 as pb


class RemoteOptions(BaseModel):
    model_config = STRICT

    tls_ca: Path | None = Field(
        default=None, description="PEM file of who signed the other service's certificate"
    )


class RemoteSource(Source):
    where = "ADDRESS"
    description = "The tools of another service."
    Config = RemoteOptions

    @classmethod
    async def tools(cls, where: str, options: RemoteOptions, sandbox: SandboxConfig) -> list[Tool]:
        """The tools of the service. Raises StartError if no service answers there."""
        try:
            authority = None if options.tls_ca is None else read_authority(options.tls_ca)
        except TlsError as error:
            raise StartError(f"--set grpc.tls_ca: {error}") from error
        service = RemoteService(where, os.environ.get(TOKEN_VARIABLE, ""), authority)
        try:
            descriptors = list(map(descriptor_from_proto, await service.describe()))
        except BaseException:
            await service.stop()
            raise
        listed = frozenset(descriptor.name for descriptor in descriptors)
        if not descriptors:
            return [_SessionsOnly(service)]
        return [RemoteTool(service, descriptor, listed) for descriptor in descriptors]


class RemoteTool(StandIn):
    """One tool of another service. Its state is the session there, which it shares."""

    def __init__(
        self, service: RemoteService, descriptor: Descriptor, listed: frozenset[str]
    ) -> None:
        """`listed`: the tools that the other service has for every session."""
        super().__init__(descriptor)
        self._service = service
        self._listed = listed
        self.parallel_calls = descriptor.parallel_calls
        self.stateful = descriptor.stateful

    async def start(self) -> None:
        self._service.start()

    async def stop(self) -> None:
        await self._service.stop()

    async def open(self, session: SessionInfo) -> RemoteSession:
        return await self._service.join(session, tuple(self._listed.intersection(session.names)))

    async def close(self, state: RemoteSession) -> None:
        await self._service.leave(state)

    def session_tools(self, state: RemoteSession) -> Sequence[Tool]:
        for one in state.tools:
            if one.name not in self._listed and one.name not in state.own:
                own = RemoteTool(self._service, descriptor_from_proto(one), self._listed)
                state.own[one.name] = own
        return tuple(state.own.values())

    async def run(self, state: RemoteSession, call: Call, cancellation: Cancellation) -> Result:
        known = UNREAD not in call.arguments and not isinstance(self._descriptor.format, RawFormat)
        return await state.call(self.name, call, arguments_known=known, cancellation=cancellation)


class _SessionsOnly(RemoteTool):
    """Stands for a service that lists no tools, because each belongs to a single session."""

    callable = False

    def __init__(self, service: RemoteService) -> None:
        nothing = descriptor_from_proto(pb.ToolDescriptor(name="grpc"))
        super().__init__(service, nothing, frozenset())
