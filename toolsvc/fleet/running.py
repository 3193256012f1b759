"""A host, where it runs: what a process of its own does for its front, whatever that process is."""

from __future__ import annotations

import contextlib

from prometheus_client import generate_latest

from toolsvc.edge.metrics import Metrics
from toolsvc.edge.service import ToolServicer
from toolsvc.host.host import Host
from toolsvc.service_config import ServiceConfig
from toolsvc.serving import drain, running_host, service_name, start_server
from toolwright.rpc.auth import TokenOnBehalf
from toolwright.rpc.server import Server
from toolwright.rpc.tls import Certificate


class RunningHost:
    """`start` once, then the others as often as one likes, `end` in any case."""

    def __init__(self) -> None:
        self._running = contextlib.AsyncExitStack()
        self._servers: list[Server] = []
        self._host: Host | None = None
        self._metrics: Metrics | None = None

    async def start(
        self,
        config: ServiceConfig,
        tools: tuple[str, ...],
        link: str,
        token: str,
        certificate: Certificate | None = None,
    ) -> tuple[Host, int]:
        """The host, which answers its front at `link`, and the port there. `tools`: names of those
        that it serves, none = all. StartError or ListenError."""
        running = running_host(config, only=tools)
        host, self._metrics = await self._running.enter_async_context(running)
        self._host = host
        server = Server(link, tokens=TokenOnBehalf(token), certificate=certificate)
        await self.serve(server, ToolServicer(host, service_name()))
        return host, server.port

    async def serve(self, server: Server, servicer: ToolServicer) -> None:
        """Answers at one more address. ListenError."""
        await start_server(server, servicer)
        self._servers.append(server)

    def sessions(self) -> frozenset[str]:
        return frozenset() if self._host is None else frozenset(self._host.session_ids)

    def page(self) -> str:
        """Its metrics in Prometheus' text format."""
        return "" if self._metrics is None else generate_latest(self._metrics.registry).decode()

    async def end(self) -> None:
        """Gives calls their grace, then ends every session."""
        if self._host is not None:
            await drain(self._host, *self._servers)
        await self._running.aclose()
