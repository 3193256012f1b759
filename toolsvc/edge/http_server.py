"""An HTTP face beside the service's gRPC: listens, and lets in who may come in.

Loopback or a bearer token, as everywhere, and no request of another site's page
(`toolwright.rpc.http_rule`). The answers are the business of its application.

Invariants
- A refusal comes before anything of a body is read.
- A connection on which no request begins for `IDLE_SECONDS` is closed, and there are at most
  `MOST_CONNECTIONS`: those who say nothing cost neither threads nor the files of sessions.
- A body comes as it is: one that is packed would be far more memory than it was told to be.
"""

from __future__ import annotations

import asyncio
from typing import Self

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler

from toolsvc.errors import StartError
from toolwright.rpc.auth import Tokens, service_tokens
from toolwright.rpc.errors import ListenError
from toolwright.rpc.http_middleware import ruled
from toolwright.rpc.http_rule import HttpRule, names_of
from toolwright.rpc.options import TOKEN_VARIABLE, is_local

IDLE_SECONDS = 60.0
"""Longer than HTTP clients keep a connection that they do not use."""
BODY_SECONDS = 60.0
"""For a body to come in."""
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
    ) -> None:
        """`option` and `insecure_option`: how an operator sets `listen` and `insecure`, for what is
        said to him. `reuse_port`: several processes share the address. `public`: `insecure`, and
        nobody is asked for a token. StartError for an address that needs one."""
        tokens = Tokens() if public else asked_for()
        self._address = address_of(
            listen, bool(tokens) or insecure or public, option, insecure_option
        )
        app.middlewares.insert(0, ruled(HttpRule(tokens, names_of(listen))))
        app.middlewares.insert(1, _unpacked)
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
            raise StartError(
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
        """The one that was bound, for port 0."""
        if self._listening is None:
            raise RuntimeError("enter the server first")
        return int(self._listening.sockets[0].getsockname()[1])

    def _connected(self) -> asyncio.BaseProtocol:
        server = self._runner.server
        if server is None or len(server.connections) >= MOST_CONNECTIONS:
            return _Full()
        return server()


class _Full(asyncio.Protocol):
    """A connection that finds no room."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


def asked_for() -> Tokens:
    """What this process's environment says. StartError if that cannot be used."""
    try:
        return service_tokens()
    except ListenError as error:
        raise StartError(str(error)) from error


def address_of(listen: str, reachable: bool, option: str, fix: str) -> tuple[str, int]:
    """Host and port. `reachable`: other machines may reach it. StartError where they may not and
    could; `option` set `listen`, and `fix` would let them."""
    host, colon, port = listen.rpartition(":")
    if not (colon and host and port.isdigit()):
        raise StartError(f"{option} {listen}: write it as host:port")
    if not (is_local(listen) or reachable):
        raise StartError(
            f"{option} {listen} is reachable from other machines: set a bearer token "
            f"({TOKEN_VARIABLE}), listen on 127.0.0.1, or say {fix}"
        )
    return host.strip("[]"), int(port)


async def body_of(request: web.Request) -> bytes:
    """All of it, as it was sent. What is too large or too slow is refused by aiohttp's errors."""
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


@web.middleware
async def _unpacked(request: web.Request, handler: Handler) -> web.StreamResponse:
    if request.headers.get(hdrs.CONTENT_ENCODING, "identity").lower() != "identity":
        return refused(415, "send the body as it is, without Content-Encoding")
    return await handler(request)
