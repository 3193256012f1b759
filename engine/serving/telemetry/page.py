"""The page for Prometheus: on loopback, on the engine's own event loop, so an idle connection costs
no thread. Requests from other sites are refused (`toolwright.rpc.http_rule`)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from toolwright.rpc.auth import Tokens
from toolwright.rpc.http_middleware import ruled
from toolwright.rpc.http_rule import HttpRule

_IDLE_SECONDS = 60.0
"""Time after which a connection without a request is closed."""


@asynccontextmanager
async def metrics_page(registry: CollectorRegistry, port: int) -> AsyncIterator[None]:
    """Serves `/metrics` within the block. Raises OSError if the port is taken."""

    async def show(request: web.Request) -> web.Response:
        return web.Response(
            body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST}
        )

    app = web.Application(middlewares=[ruled(HttpRule(Tokens()))])
    app.router.add_get("/metrics", show)
    runner = web.AppRunner(app, access_log=None, keepalive_timeout=_IDLE_SECONDS)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        yield
    finally:
        await runner.cleanup()
