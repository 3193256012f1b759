"""Serves the page of the service's metrics over HTTP; `metrics` makes its content."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from toolwright.rpc.http_server import HttpServer


class MetricsServer(HttpServer):
    """The page at `/metrics`. Async context manager."""

    def __init__(self, listen: str, page: Callable[[], Awaitable[bytes]], *, public: bool) -> None:
        """`page`: in Prometheus' text format. `public`: other machines see it without a token.
        Raises ListenError for an address that needs one."""
        self._page = page
        app = web.Application()
        app.router.add_get("/metrics", self._answer)
        super().__init__(
            app,
            listen,
            option="--metrics",
            insecure=False,
            insecure_option="--metrics-public",
            public=public,
        )

    async def _answer(self, request: web.Request) -> web.Response:
        return web.Response(body=await self._page(), headers={"Content-Type": CONTENT_TYPE_LATEST})
