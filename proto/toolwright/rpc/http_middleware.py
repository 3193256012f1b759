"""`http_rule` for applications of aiohttp."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from toolwright.rpc.http_rule import HttpRule

Refuse = Callable[[web.Request, int, str], web.Response]
"""(request, status, sentence) -> the response to a refused request."""


def ruled(rule: HttpRule, refuse: Refuse | None = None) -> Middleware:
    """Answers a refused request with its status and {"detail": sentence}, or by `refuse`. Put it
    first."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        refusal = rule.refusal(request.headers)
        if refusal is not None and refuse is not None:
            return refuse(request, refusal.status, refusal.sentence)
        if refusal is not None:
            return web.json_response({"detail": refusal.sentence}, status=refusal.status)
        return await handler(request)

    return check
