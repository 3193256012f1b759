"""A host in an actor: an ordinary host, and an ordinary gRPC server on its node's address.

Its server requires a token that only the front has, and uses TLS off loopback. Ray carries only its
start, its end and the ids of its sessions.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass

from toolsvc.errors import StartError
from toolsvc.fleet.hosts import BEAT_SECONDS, HOST_NAME, Ready
from toolsvc.fleet.running import RunningHost
from toolsvc.service_config import ServiceConfig
from toolsvc.serving import service_name
from toolwright.cluster.actors import node_address
from toolwright.cluster.certificate import self_signed
from toolwright.process.stderr_log import log_to_stderr
from toolwright.rpc.errors import ListenError
from toolwright.rpc.options import is_local


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorAssignment:
    """What the host is to be."""

    config: ServiceConfig
    tools: tuple[str, ...]
    """Names of the tools to serve, out of those in the configuration."""
    folder: str
    """Folder in which the front was started, so that relative paths mean the same on every node."""
    token: str
    version: str
    """Version of the front."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The host cannot start; one sentence says why."""

    sentence: str


class HostActor:
    """Call `start` once, then the other methods in any number, and `end` last."""

    def __init__(self) -> None:
        self._running = RunningHost()

    async def start(self, assignment: ActorAssignment) -> Ready | Failed:
        address = node_address()
        log_to_stderr()
        try:
            return await self._start(assignment, address)
        except (StartError, ListenError) as error:
            await self._running.end()
            return Failed(sentence=f"on node {address}: {error}")

    async def _start(self, assignment: ActorAssignment, address: str) -> Ready:
        if service_name() != assignment.version:
            raise StartError(
                f"{service_name()} is installed, but the front is {assignment.version}: install "
                "the same version on every node"
            )
        try:
            os.chdir(assignment.folder)
        except OSError as error:
            raise StartError(
                f"{error}: the service's files must be on every node under the same path"
            ) from error
        listen = f"{address}:0"
        shown = None if is_local(listen) else self_signed(HOST_NAME)
        host, port = await self._running.start(
            assignment.config, assignment.tools, listen, assignment.token, shown
        )
        return Ready(
            link=f"{address}:{port}",
            tools=assignment.tools,
            isolation=host.isolation,
            certificate=b"" if shown is None else shown.chain,
        )

    async def beat(self) -> frozenset[str]:
        """Ids of its sessions, some seconds after the request. So one request is always open, and
        fails at once if the actor ends."""
        await asyncio.sleep(BEAT_SECONDS)
        return self._running.sessions()

    async def page(self) -> str:
        """Its metrics in Prometheus' text format."""
        return self._running.page()

    async def end(self) -> None:
        """Lets calls finish within their grace time, then ends every session."""
        await self._running.end()
