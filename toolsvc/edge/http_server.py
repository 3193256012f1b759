"""An HTTP face beside the service's gRPC: listens, and lets in who may come in.

Loopback or a bearer token, as everywhere. What is answered is the business of its application.
"""

from __future__ import annotations

import hmac
import os
from typing import Self

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from toolsvc.errors import StartError
from toolwright.rpc.options import TOKEN_VARIABLE, is_local


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
    ) -> None:
        """`option` and `insecure_option`: how an operator sets `listen` and `insecure`, for what is
        said to him. `reuse_port`: several processes share the address. StartError for an address
        that needs a token."""
        host, colon, port = listen.rpartition(":")
        if not colon or not port.isdigit():
            raise StartError(f"{option} {listen}: write it as host:port")
        token = os.environ.get(TOKEN_VARIABLE, "")
        if not is_local(listen) and not token and not insecure:
            raise StartError(
                f"{option} {listen} is reachable from other machines: set a bearer token "
                f"({TOKEN_VARIABLE}), listen on 127.0.0.1, or say {insecure_option}"
            )
        if token:
            app.middlewares.append(_wants(token))
        self._option = option
        self._address = host.strip("[]"), int(port)
        self._reuse_port = reuse_port
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        site = web.TCPSite(self._runner, *self._address, reuse_port=self._reuse_port)
        try:
            await site.start()
        except OSError as error:
            await self._runner.cleanup()
            raise StartError(
                f"cannot listen on {self._option} {':'.join(map(str, self._address))}: "
                f"{error.strerror or error}; stop what holds it, or choose another"
            ) from error
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    @property
    def port(self) -> int:
        """The one that was bound, for port 0."""
        return int(self._runner.addresses[0][1])


def refused(status: int, why: str, *, retry_after: float | None = None) -> web.Response:
    """`retry_after`: seconds after which the same request may succeed."""
    response = web.json_response({"detail": why}, status=status)
    if retry_after is not None:
        response.headers["Retry-After"] = f"{max(1.0, retry_after):.0f}"
    return response


def _wants(token: str) -> Middleware:
    expected = f"Bearer {token}".encode()

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not hmac.compare_digest(request.headers.get("Authorization", "").encode(), expected):
            return refused(401, "bearer token missing or wrong")
        return await handler(request)

    return check
