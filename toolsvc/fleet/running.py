"""A host in its own process: what the process does for its front, for every kind of process."""

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
    """Call `start` once, then the other methods in any number; every host needs `end`."""

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
        """The host, which answers its front at `link`, and the port there. `tools`: names of the
        tools to serve, empty = all. Raises StartError or ListenError."""
        running = running_host(config, only=tools)
        host, self._metrics = await self._running.enter_async_context(running)
        self._host = host
        server = Server(link, tokens=TokenOnBehalf(token), certificate=certificate)
        await self.serve(server, ToolServicer(host, service_name()))
        return host, server.port

    async def serve(self, server: Server, servicer: ToolServicer) -> None:
        """Serves at one more address. Raises ListenError."""
        await start_server(server, servicer)
        self._servers.append(server)

    def sessions(self) -> frozenset[str]:
        return frozenset() if self._host is None else frozenset(self._host.session_ids)

    def page(self) -> str:
        """Its metrics in Prometheus' text format."""
        return "" if self._metrics is None else generate_latest(self._metrics.registry).decode()

    async def end(self) -> None:
        """Lets calls finish within their grace time, then ends every session."""
        if self._host is not None:
            await drain(self._host, *self._servers)
        await self._running.aclose()
