"""The viewer's answers: which requests get one, and what a browser may do with it.

Shown text was written by a policy, by tools, by pages of the web. It is harmless because the pages
put it into the document as text alone; the headers here are the second wall. Which requests are
answered is `toolwright.rpc.http_rule`'s.

Invariants
- No script runs but ours, from files of ours: no inline script, no `eval`, no markup from a string
  (`require-trusted-types-for`), nothing fetched from anywhere else, no frame around us.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from toolwright.rpc.auth import Tokens
from toolwright.rpc.http_rule import HttpRule, Refusal, asgi_headers

DATA = "/api/"
"""Paths below need the token; the others are files of this program, the same for everybody."""
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
_HEADERS = [(name.encode(), value.encode()) for name, value in HEADERS.items()]


class Door:
    """An ASGI application around the viewer's. `names`: of this machine (`http_rule.names_of`)."""

    def __init__(self, app: Any, tokens: Tokens, names: Iterable[str] = ()) -> None:
        self._app = app
        self._rule = HttpRule(tokens, names)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        data = scope["path"].startswith(DATA)
        refusal = self._rule.refusal(asgi_headers(scope), data=data)
        if refusal is not None:
            await _refuse(send, refusal)
        else:
            await self._app(scope, receive, _with_headers(send))


def _with_headers(send: Any) -> Any:
    async def sending(message: Any) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], *_HEADERS]
        await send(message)

    return sending


async def _refuse(send: Any, refusal: Refusal) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), *_HEADERS]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": refusal.sentence.encode()})
