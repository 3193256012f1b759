"""`http_rule` for applications of aiohttp."""

from __future__ import annotations

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from toolwright.rpc.http_rule import HttpRule


def ruled(rule: HttpRule) -> Middleware:
    """Answers a refused request with its status and {"detail": sentence}. Put it first."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        refusal = rule.refusal(request.headers)
        if refusal is not None:
            return web.json_response({"detail": refusal.sentence}, status=refusal.status)
        return await handler(request)

    return check
