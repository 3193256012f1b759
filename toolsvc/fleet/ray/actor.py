"""What runs in an actor: an ordinary host, and an ordinary gRPC server on its node's address.

Its server asks for a token that only the front has, and off loopback it speaks TLS. Ray says who
begins and ends it and hears which sessions it holds; nothing else of a session travels that way.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass

import ray

from toolsvc.errors import StartError
from toolsvc.fleet.hosts import BEAT_SECONDS, Ready
from toolsvc.fleet.ray.certificate import self_signed
from toolsvc.fleet.running import RunningHost
from toolsvc.service_config import ServiceConfig
from toolsvc.serving import log_to_stderr, service_name
from toolwright.rpc.errors import ListenError
from toolwright.rpc.options import is_local


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
class Failed:
    """It cannot start; one sentence says why."""

    sentence: str


class HostActor:
    """`start` once, then the others as often as one likes, `end` last."""

    def __init__(self) -> None:
        self._running = RunningHost()

    async def start(self, assignment: Assignment) -> Ready | Failed:
        address: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        log_to_stderr()
        try:
            return await self._start(assignment, f"[{address}]" if ":" in address else address)
        except (StartError, ListenError) as error:
            await self._running.end()
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
        listen = f"{address}:0"
        shown = None if is_local(listen) else self_signed()
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
        """The sessions that it holds, a while after it was asked; so a request that is always open
        tells at once of its end."""
        await asyncio.sleep(BEAT_SECONDS)
        return self._running.sessions()

    async def page(self) -> str:
        """Its metrics in Prometheus' text format."""
        return self._running.page()

    async def end(self) -> None:
        """Gives calls their grace, then ends every session."""
        await self._running.end()
