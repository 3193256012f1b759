"""A gRPC server as every process runs it: health, reflection, a bound port or a clear error.

It listens on loopback or a Unix socket. Any other address requires a bearer token or a certificate
of the client, or `insecure`. The server's own certificate does not restrict its clients. A taken
port is an error, and a port is never shared. The request of a refused caller is not read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from toolwright.process.holder import holder_of
from toolwright.process.sockets import path_fault
from toolwright.rpc import options
from toolwright.rpc.auth import Tokens
from toolwright.rpc.errors import ListenError
from toolwright.rpc.tls import Certificate


class Server:
    """One process's gRPC server. `add` the services, `start`, then `stop`."""

    def __init__(
        self,
        listen: str,
        *,
        tokens: Tokens | None = None,
        certificate: Certificate | None = None,
        clients: bytes | None = None,
        insecure: bool = False,
        probed: str = "",
    ) -> None:
        """tokens: if not empty, every request needs one of them. clients: with `certificate`, PEM
        certificates of the authorities for clients, which must then show one over TCP. probed: an
        address that answers grpc.health.v1 alone, in plain text and without a token, for probes
        that know neither TLS nor tokens; "" = no such address."""
        if not (options.is_local(listen) or tokens or (certificate and clients) or insecure):
            raise ListenError(
                f"{listen} is reachable from other machines: set a bearer token "
                f"({options.TOKEN_VARIABLE}), or listen on 127.0.0.1"
            )
        interceptors = (_RequireBearer(tokens),) if tokens else ()
        self._server = grpc.aio.server(interceptors=interceptors, options=options.SERVER)
        self._for_probes = grpc.aio.server(options=options.PROBED) if probed else None
        self._listen = listen
        self._probed_at = probed
        self._certificate = certificate
        self._clients = clients
        self._names: list[str] = [health.SERVICE_NAME, reflection.SERVICE_NAME]
        self._health = health.aio.HealthServicer()
        for server in filter(None, (self._server, self._for_probes)):
            health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        self.port = 0

    def add(self, name: str, register: Callable[[Any], None]) -> None:
        """Adds a service; `register` is called with the gRPC server, `name` is its full name."""
        register(self._server)
        self._names.append(name)

    async def start(self, *, serving: bool = True) -> None:
        """Binds and answers. serving: the answer of the health service. Raises ListenError if an
        address is taken or belongs to another machine."""
        reflection.enable_server_reflection(self._names, self._server)
        self.port = self._bind(self._listen)
        if self._for_probes is not None:
            _bind_plain(self._for_probes, self._probed_at)
            await self._for_probes.start()
        await self._server.start()
        await self.set_serving(serving)

    async def set_serving(self, serving: bool) -> None:
        """Sets the answer of grpc.health.v1 for the server and each service."""
        status = health_pb2.HealthCheckResponse.SERVING
        if not serving:
            status = health_pb2.HealthCheckResponse.NOT_SERVING
        for name in ("", *self._names):
            await self._health.set(name, status)

    async def stop(self, grace: float) -> None:
        """Refuses new RPCs, gives those in flight `grace` seconds."""
        await self.set_serving(False)
        await self._server.stop(grace)
        if self._for_probes is not None:
            await self._for_probes.stop(0)

    def _bind(self, address: str) -> int:
        if self._certificate is None or options.is_unix(address):
            return _bind_plain(self._server, address)
        pair = (self._certificate.key, self._certificate.chain)
        shown = grpc.ssl_server_credentials(
            [pair],
            root_certificates=self._clients,
            require_client_auth=self._clients is not None,
        )
        try:
            return int(self._server.add_secure_port(address, shown))
        except RuntimeError as error:
            raise cannot_listen(address) from error


def _bind_plain(server: Any, address: str) -> int:
    try:
        return int(server.add_insecure_port(address))
    except RuntimeError as error:
        raise cannot_listen(address) from error


def cannot_listen(address: str) -> ListenError:
    port = address.rpartition(":")[2]
    who = holder_of(int(port)) if port.isdecimal() and not options.is_unix(address) else ""
    if options.is_unix(address) and (fault := path_fault(address.partition(":")[2])):
        return ListenError(f"cannot listen on {address}: {fault}")
    held = f"is in use by {who}" if who else "is in use or the address is not this machine's"
    return ListenError(
        f"cannot listen on {address}: the port {held}; stop the process that holds it, or choose "
        "another address"
    )


class _RequireBearer(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], details: Any
    ) -> Any:
        given = dict(details.invocation_metadata).get("authorization", "")
        return await continuation(details) if self._tokens.let_in(given) else _REFUSING


async def _refuse(_requests: Any, context: Any) -> None:
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, "bearer token missing or wrong")


_REFUSING = grpc.stream_stream_rpc_method_handler(_refuse)
"""Also for unary calls: their one message would be read, up to 64 MiB of it, before the refusal."""
