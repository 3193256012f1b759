"""An `Offer` on standard streams or on streamable HTTP."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import uvicorn
from mcp.server.stdio import stdio_server

from toolsvc.edge.client import Client
from toolsvc.sources.mcp.offer import IDLE_SECONDS, SESSION_HEADER, Offer
from toolwright.rpc.auth import service_tokens
from toolwright.rpc.http_rule import HttpRule, asgi_headers, names_of
from toolwright.rpc.http_server import BACKLOG, MOST_CONNECTIONS, address_of


async def serve_stdio(client: Client) -> None:
    """Serves one MCP client, until it closes its side."""
    async with _offer(client, alone="stdio") as offer, stdio_server() as (read, write):
        server = offer.server()
        await server.run(read, write, server.create_initialization_options())


async def serve_http(client: Client, listen: str, *, insecure: bool) -> None:
    """Serves until SIGTERM. Raises ListenError for an address that needs a token."""
    tokens = service_tokens()
    host, port = address_of(listen, bool(tokens) or insecure, "--http", "--insecure")
    async with _offer(client, alone="") as offer:
        app = offer.server().streamable_http_app(host=host, session_idle_timeout=IDLE_SECONDS)
        config = uvicorn.Config(
            _Guarded(app, offer, HttpRule(tokens, names_of(listen))),
            host=host,
            port=port,
            log_level="warning",
            backlog=BACKLOG,
            limit_concurrency=MOST_CONNECTIONS,
        )
        server = _Server(config)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, server.stop)
        await server.serve()


@asynccontextmanager
async def _offer(client: Client, alone: str) -> AsyncIterator[Offer]:
    async with client:
        listed = await client.list_tools()
        offer = Offer(client, {tool.name: tool for tool in listed.tools}, alone)
        try:
            yield offer
        finally:
            await offer.close()


class _Server(uvicorn.Server):
    """Leaves signals to its caller: uvicorn would raise them again at its end, and so kill the
    process before the sessions are closed."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def stop(self) -> None:
        self.should_exit = True


class _Guarded:
    """An ASGI application around the SDK's: refuses by the rule of all HTTP servers, and ends a
    session with the DELETE that ends its MCP session."""

    def __init__(self, app: Any, offer: Offer, rule: HttpRule) -> None:
        self._app = app
        self._offer = offer
        self._rule = rule

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = asgi_headers(scope)
        refusal = self._rule.refusal(headers)
        if refusal is not None:
            await send({"type": "http.response.start", "status": refusal.status, "headers": []})
            await send({"type": "http.response.body", "body": refusal.sentence.encode()})
            return
        await self._app(scope, receive, send)
        session = headers.get(SESSION_HEADER, "")
        if scope["method"] == "DELETE" and session:
            await self._offer.end(session)
