"""All endpoints of one tool service: its own address and those of its workers.

Invariants
- An endpoint's channel opens when it is first needed, and closes after two idle renewals in a row.
- A token goes only to the service's own address and to addresses on this machine.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection

import grpc.aio
from grpc import StatusCode

from engine.core.time_limit import loop_now
from engine.core.tools.link.counts import ServiceCounts
from engine.core.tools.link.endpoint import Endpoint
from engine.core.tools.link.retry_policy import RetryPolicy, failure_kind, suggested_pause
from engine.errors import StartupError
from toolwright.recipe import Tool as ToolTable
from toolwright.rpc.channel import open_channel
from toolwright.rpc.errors import ServiceError, TransportError
from toolwright.rpc.options import TOKEN_VARIABLE, may_have_token
from toolwright.rpc.tls import Certificate, TlsError, read_authority, read_certificate
from toolwright.tool.v1 import tool_pb2 as pb

ASK_SECONDS = 10.0
"""Timeout of requests that a service answers from memory."""

Connect = Callable[[str], grpc.aio.Channel]
"""Opens a channel to an address."""


class ServiceLink:
    """The endpoints of one service. `close` them."""

    def __init__(
        self,
        name: str,
        table: ToolTable,
        address: str,
        connect: Connect | None,
    ) -> None:
        """address: the service's own. connect: None = gRPC, with the table's certificates and the
        environment's token. Raises StartupError if a TLS file cannot be used."""
        key = "tls_ca"
        try:
            self._authority = None if table.tls_ca is None else read_authority(table.tls_ca)
            key = "tls_cert"
            self._identity = _identity(table)
        except TlsError as error:
            raise StartupError(f"tools.{name}.{key}: {error}") from error
        self.name = name
        self.table = table
        self.address = address
        self.counts = ServiceCounts()
        self._token = os.environ.get(TOKEN_VARIABLE, "")
        self._connect = connect or self._over_grpc
        self._endpoints: dict[str, Endpoint] = {}
        self._idle: set[str] = set()
        """Endpoints that were idle at the last renewal."""
        self.before_request: Callable[[], None] | None = None
        """Called before each request; it may forbid the request by an error."""

    @property
    def addresses(self) -> list[str]:
        """Addresses of all endpoints that are open now."""
        return list(self._endpoints)

    @property
    def calls_in_flight(self) -> int:
        return sum(one.calls_in_flight for one in self._endpoints.values())

    @property
    def seconds_away(self) -> float:
        """Sum of the outages that are in progress now."""
        return sum(one.seconds_away for one in self._endpoints.values())

    def endpoint_at(self, address: str) -> Endpoint:
        """The service's process at `address`, for a request."""
        self.check_request()
        endpoint = self._endpoints.get(address)
        if endpoint is None:
            channel = self._connect(address)
            endpoint = Endpoint(
                self.name, address, self.counts, channel, self._token, self.check_request
            )
            self._endpoints[address] = endpoint
        return endpoint

    def check_request(self) -> None:
        """Raises what `before_request` raises."""
        if self.before_request is not None:
            self.before_request()

    def recorded_address(self, address: str) -> str:
        """Address at which to look for a session of an earlier life. A stranger may have written
        the journal, so the service's own address replaces one on another machine; the service knows
        its workers."""
        return address if may_have_token(address, self.address) else self.address

    async def list_tools(self, patience: float) -> pb.ListToolsResponse:
        """The service's tools. patience: longest time to wait for an unreachable service, in
        seconds. Raises StartupError if the service does not answer."""
        retry_policy = RetryPolicy(patience)
        endpoint = self.endpoint_at(self.address)
        while True:
            began = loop_now()
            try:
                return await endpoint.unary(
                    endpoint.stub.ListTools, pb.ListToolsRequest(), timeout=ASK_SECONDS
                )
            except (ServiceError, TransportError) as error:
                pause = retry_policy.after(failure_kind(error), began, suggested_pause(error))
                if error.code is StatusCode.UNAUTHENTICATED:
                    raise StartupError(
                        f"tools.{self.name}: the service at {self.address} answers and refuses "
                        f"this engine ({error})"
                    ) from error
                if pause is None:
                    raise StartupError(
                        f"tools.{self.name}: no tool service answers at {self.address} ({error}); "
                        f"start one with `toolsvc serve TOOL --listen {self.address}`, or correct "
                        f"tools.{self.name}.service"
                    ) from error
                await asyncio.sleep(pause)

    async def forget_idle(self, used: Collection[str]) -> None:
        """Closes endpoints that were idle at two renewals in a row: workers come and go. At the
        first, a session's close may still be in progress. used: addresses that hold a session."""
        idle = {
            address
            for address, endpoint in self._endpoints.items()
            if address != self.address and address not in used and not endpoint.calls_in_flight
        }
        for address in idle & self._idle:
            await self._endpoints.pop(address).close()
        self._idle = idle

    async def close(self) -> None:
        """Closes all endpoints."""
        for endpoint in self._endpoints.values():
            await endpoint.close()

    def _over_grpc(self, address: str) -> grpc.aio.Channel:
        return open_channel(address, self._token, self._authority, self._identity)


def _identity(table: ToolTable) -> Certificate | None:
    if table.tls_cert is None or table.tls_key is None:
        return None
    return read_certificate(table.tls_cert, table.tls_key)
