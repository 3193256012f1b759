"""An HTTP server of aiohttp: it listens and authorises requests.

Loopback or a bearer token, as everywhere, and no request of another site's page
(`toolwright.rpc.http_rule`). The answers are the business of its application.

Invariants
- A refusal comes before anything of a body is read.
- A connection without a request for `IDLE_SECONDS` is closed, and there are at most
  `MOST_CONNECTIONS`. So idle clients take neither threads nor the open files that sessions need.
- A compressed body is refused: unpacked it could take far more memory than its declared size.
"""

from __future__ import annotations

import asyncio
from typing import Self

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

from toolwright.rpc.auth import Tokens, service_tokens
from toolwright.rpc.errors import ListenError
from toolwright.rpc.http_middleware import Refuse, ruled
from toolwright.rpc.http_rule import HttpRule, names_of
from toolwright.rpc.options import TOKEN_VARIABLE, is_local

IDLE_SECONDS = 60.0
"""Longer than HTTP clients keep a connection that they do not use."""
BODY_SECONDS = 60.0
"""Longest time to receive a body, in seconds."""
MOST_CONNECTIONS = 4096
BACKLOG = 4096
"""Connections that wait to be taken: all sessions of a service may begin at once."""


class HttpServer:
    """Async context manager."""

    def __init__(
        self,
        app: web.Application,
        listen: str,
        *,
        option: str,
        insecure: bool,
        insecure_option: str,
        reuse_port: bool = False,
        public: bool = False,
        refuse: Refuse | None = None,
    ) -> None:
        """`option` and `insecure_option`: names of the command-line options for `listen` and
        `insecure`, for messages. `reuse_port`: several processes share the address. `public`: as
        `insecure`, and no request needs a token. `refuse`: makes the response to a refused request;
        None = `refused`. Raises ListenError for an address that needs a
        token."""
        tokens = Tokens() if public else service_tokens()
        self._address = address_of(
            listen, bool(tokens) or insecure or public, option, insecure_option
        )
        refuse = refuse or (lambda _request, status, why: refused(status, why))
        app.middlewares.insert(0, ruled(HttpRule(tokens, names_of(listen)), refuse))
        app.middlewares.insert(1, _unpacked(refuse))
        self._option = option
        self._reuse_port = reuse_port
        self._runner = web.AppRunner(
            app,
            access_log=None,
            handler_cancellation=True,
            keepalive_timeout=IDLE_SECONDS,
            auto_decompress=False,
        )
        self._listening: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        try:
            self._listening = await asyncio.get_running_loop().create_server(
                self._connected, *self._address, backlog=BACKLOG, reuse_port=self._reuse_port
            )
        except (OSError, OverflowError) as error:
            await self._runner.cleanup()
            why = getattr(error, "strerror", None) or error
            raise ListenError(
                f"cannot listen on {self._option} {':'.join(map(str, self._address))}: "
                f"{why}; stop what holds it, or choose another port"
            ) from error
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._listening is not None:
            self._listening.close()
        await self._runner.cleanup()

    @property
    def port(self) -> int:
        """Port that was bound; useful after port 0."""
        if self._listening is None:
            raise RuntimeError("enter the server first")
        return int(self._listening.sockets[0].getsockname()[1])

    def _connected(self) -> asyncio.BaseProtocol:
        server = self._runner.server
        if server is None or len(server.connections) >= MOST_CONNECTIONS:
            return _Full()
        return server()


class _Full(asyncio.Protocol):
    """Refuses a connection beyond the maximum."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


def address_of(listen: str, reachable: bool, option: str, fix: str) -> tuple[str, int]:
    """Host and port. `reachable`: other machines may reach it. Raises ListenError if the address is
    reachable without permission. `option`: option that set `listen`. `fix`: option that gives the
    permission."""
    host, colon, port = listen.rpartition(":")
    if not (colon and host and port.isdigit()):
        raise ListenError(f"{option} {listen}: write it as host:port")
    if not (is_local(listen) or reachable):
        raise ListenError(
            f"{option} {listen} is reachable from other machines: set a bearer token "
            f"({TOKEN_VARIABLE}), listen on 127.0.0.1, or say {fix}"
        )
    return host.strip("[]"), int(port)


async def body_of(request: web.Request) -> bytes:
    """The complete body, as it was sent. Raises aiohttp's errors for a body that is too large or
    too slow. A body that is too large by its own head is not read."""
    most = request.client_max_size
    if most and (request.content_length or 0) > most:
        raise web.HTTPRequestEntityTooLarge(most, request.content_length or 0)
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await request.read()
    except TimeoutError:
        raise web.HTTPRequestTimeout from None


def refused(status: int, why: str, *, retry_after: float | None = None) -> web.Response:
    """`retry_after`: seconds after which the same request may succeed."""
    response = web.json_response({"detail": why}, status=status)
    if retry_after is not None:
        response.headers["Retry-After"] = f"{max(1.0, retry_after):.0f}"
    return response


def _unpacked(refuse: Refuse) -> Middleware:
    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.headers.get(hdrs.CONTENT_ENCODING, "identity").lower() != "identity":
            return refuse(request, 415, "send the body as it is, without Content-Encoding")
        return await handler(request)

    return check
