"""A search API and a small web on loopback, each a real HTTP server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web


class SearchServer:
    """Answers `POST /search` as Serper does, with what `organic` holds; records the requests."""

    def __init__(self) -> None:
        self.organic: list[dict[str, str]] = []
        self.more: dict[str, Any] = {}
        self.faults: list[web.Response] = []
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.url = ""

    async def search(self, request: web.Request) -> web.Response:
        self.requests.append(await request.json())
        self.keys.append(request.headers.get("X-API-KEY"))
        if self.faults:
            return self.faults.pop(0)
        return web.json_response({"organic": self.organic, **self.more})


def hit(url: str, snippet: str = "a snippet", title: str = "A title") -> dict[str, str]:
    """One of `SearchServer.organic`."""
    return {"title": title, "link": url, "snippet": snippet}


def page(*paragraphs: str, title: str = "A page") -> str:
    """HTML with something around the text that nobody wants to read."""
    body = "".join(f"<p>{paragraph}</p>" for paragraph in paragraphs)
    return (
        f"<html><head><title>{title}</title></head><body><nav><a href='/'>Home</a></nav>"
        f"<article>{body}</article><script>alert(1)</script></body></html>"
    )


@asynccontextmanager
async def serving(*routes: web.RouteDef, client_max_size: int = 1 << 20) -> AsyncIterator[int]:
    """The port on loopback at which `routes` are served; client_max_size: bytes of a request."""
    app = web.Application(client_max_size=client_max_size)
    app.add_routes(routes)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@asynccontextmanager
async def search_server() -> AsyncIterator[SearchServer]:
    server = SearchServer()
    async with serving(web.post("/search", server.search)) as port:
        server.url = f"http://127.0.0.1:{port}"
        yield server
