"""Who is let in, and what a browser may do with what it gets. An ASGI application around another.

What is shown was written by a policy, by tools, by pages of the web. It is harmless because the
pages put it into the document as text alone; the headers here are the second wall.

Invariants
- No script runs but ours, from files of ours: no inline script, no `eval`, no markup from a string
  (`require-trusted-types-for`), nothing fetched from anywhere else, no frame around us.
- Only a request for this machine's own name is answered: a stranger's name that was made to lead
  here (DNS rebinding) is refused.
- Another site's page gets nothing, whatever its browser lets it send.
- Where a token is asked for, no data leave without it. It travels in a header, in no address and no
  cookie. Its digest is looked up, so that the time of a refusal tells nothing about it.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable
from typing import Any

from toolwright.rpc.auth import Tokens

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
_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[^:@/\s\[\]]+)(:[0-9]{1,5})?")
_OF_THIS_SITE = (b"", b"same-origin", b"none")
"""What a browser says of who asks; "" = it is none, or an old one."""


class Door:
    """`names`: by which this machine is called, beside localhost and addresses in numbers."""

    def __init__(self, app: Any, tokens: Tokens, names: Iterable[str] = ()) -> None:
        self._app = app
        self._tokens = tokens
        self._names = {"localhost", *(name.lower() for name in names if name)}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        if not self._is_ours(headers.get(b"host", b"")):
            await _refuse(send, 421, "this server is not known by that name: use its address")
        elif scope["path"].startswith(DATA) and not _asked_here(headers):
            await _refuse(send, 403, "another site's page may not ask")
        elif scope["path"].startswith(DATA) and not self._tokens.let_in(
            headers.get(b"authorization", b"")
        ):
            await _refuse(send, 401, "the token is missing or wrong")
        else:
            await self._app(scope, receive, _with_headers(send))

    def _is_ours(self, host: bytes) -> bool:
        found = _HOST.fullmatch(host.decode("latin-1").lower())
        if found is None:
            return False
        if found["name"] in self._names:
            return True
        try:
            ipaddress.ip_address(found["name"].strip("[]"))
        except ValueError:
            return False
        return True


def own_names() -> set[str]:
    """By which other machines may know this one."""
    name = socket.gethostname()
    return {name, socket.getfqdn(name)}


def _asked_here(headers: dict[bytes, bytes]) -> bool:
    return headers.get(b"sec-fetch-site", b"") in _OF_THIS_SITE


def _with_headers(send: Any) -> Any:
    async def sending(message: Any) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], *_HEADERS]
        await send(message)

    return sending


async def _refuse(send: Any, status: int, sentence: str) -> None:
    kind = (b"content-type", b"text/plain; charset=utf-8")
    await send({"type": "http.response.start", "status": status, "headers": [kind, *_HEADERS]})
    await send({"type": "http.response.body", "body": sentence.encode()})
