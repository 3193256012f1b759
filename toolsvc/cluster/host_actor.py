"""What runs in an actor: an ordinary host, and an ordinary gRPC server on its node's address.

Its server asks for a token that only the front has, and off loopback it speaks TLS. Ray says who
begins and ends it and hears which sessions it holds; nothing else of a session travels that way.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from dataclasses import dataclass

import ray
from prometheus_client import generate_latest

from toolsvc.cluster.certificate import self_signed
from toolsvc.edge.metrics import Metrics
from toolsvc.edge.service import ToolServicer
from toolsvc.errors import StartError
from toolsvc.host.host import Host
from toolsvc.serving import (
    ServiceConfig,
    drain,
    log_to_stderr,
    running_host,
    service_name,
    start_server,
)
from toolwright.rpc.auth import Tokens
from toolwright.rpc.errors import ListenError
from toolwright.rpc.options import is_local
from toolwright.rpc.server import Server

BEAT_SECONDS = 2.0
"""Between two looks at which sessions have ended by themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What the host is to be."""

    config: ServiceConfig
    tools: tuple[str, ...]
    """Names of those that it serves, of all that the configuration names."""
    folder: str
    """In which the front was started: paths mean the same on every node."""
    token: str
    version: str
    """Of the front."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """It listens and answers."""

    endpoint: str
    isolation: str
    certificate: bytes = b""
    """That it shows, PEM; empty on loopback, where it shows none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """It cannot start; one sentence says why."""

    sentence: str


class HostActor:
    """`start` once, then the others as often as one likes, `end` last."""

    def __init__(self) -> None:
        self._running = contextlib.AsyncExitStack()
        self._host: Host | None = None
        self._metrics: Metrics | None = None
        self._server: Server | None = None

    async def start(self, assignment: Assignment) -> Ready | Failed:
        address: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        log_to_stderr()
        try:
            return await self._start(assignment, f"[{address}]" if ":" in address else address)
        except (StartError, ListenError) as error:
            await self._running.aclose()
            return Failed(sentence=f"on node {address}: {error}")

    async def _start(self, assignment: Assignment, address: str) -> Ready:
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
        running = running_host(assignment.config, only=assignment.tools)
        host, self._metrics = await self._running.enter_async_context(running)
        listen = f"{address}:0"
        shown = None if is_local(listen) else self_signed()
        server = Server(listen, tokens=Tokens(assignment.token), certificate=shown)
        await start_server(server, ToolServicer(host, service_name()))
        self._host, self._server = host, server
        return Ready(
            endpoint=f"{address}:{server.port}",
            isolation=host.isolation,
            certificate=b"" if shown is None else shown.chain,
        )

    async def beat(self) -> frozenset[str]:
        """The sessions that it holds, a while after it was asked; so a request that is always open
        tells at once of its end."""
        await asyncio.sleep(BEAT_SECONDS)
        return frozenset() if self._host is None else frozenset(self._host.session_ids)

    async def page(self) -> str:
        """Its metrics in Prometheus' text format."""
        return "" if self._metrics is None else generate_latest(self._metrics.registry).decode()

    async def end(self) -> None:
        """Gives calls their grace, then ends every session."""
        if self._host is not None and self._server is not None:
            await drain(self._server, self._host)
        await self._running.aclose()
