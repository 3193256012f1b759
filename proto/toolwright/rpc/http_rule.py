"""The rule by which every HTTP server of the project answers or refuses a request.

A browser sends requests for every page that is open in it, to loopback too. So a page from anywhere
can reach a server that only listens on this machine. What a page cannot do is choose `Host`,
`Origin` and `Sec-Fetch-Site`, or send JSON to another site without its permission.

Invariants
- A request without a valid token must call the server by a name of its machine, or by an address in
  numbers. A foreign name that leads here (DNS rebinding) is refused.
- Another site's page gets nothing.
- Where a token is required, no data leave without it. It travels in a header, in no address and no
  cookie. Its digest is looked up, so that the time of a refusal reveals nothing about it.
- A body is JSON and says so. Pages may send forms, text and unnamed bytes to any site.
- A request is judged by its head. Nothing of a refused body is read.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Protocol

from toolwright.rpc.auth import Tokens
from toolwright.rpc.options import is_local

JSON = "application/json"
_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[^:@/\s\[\]]+)(:[0-9]{1,5})?")
_SITES = ("", "same-origin", "none")
"""`Sec-Fetch-Site` of a request that no other site caused; "" = not a browser, or an old one."""
_PORTS = {"http": ":80", "https": ":443"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The answer to a request that is refused."""

    status: HTTPStatus
    sentence: str
    """Text of the answer, for people."""


class Headers(Protocol):
    """A mapping of header names, or any server's own kind of it."""

    def get(self, name: str, /) -> Any: ...


class HttpRule:
    """The rule of one server."""

    def __init__(self, tokens: Tokens, names: Iterable[str] = ()) -> None:
        """tokens: each request must carry one of them; false = no token is required. names: those
        of the server's machine, beside localhost and addresses in numbers (`names_of`)."""
        self._tokens = tokens
        self._names = {"localhost", *(name.lower() for name in names if name)}

    def refusal(self, headers: Headers, *, data: bool = True) -> Refusal | None:
        """None for a request that is answered; then `auth.caller` says whose it is.

        headers: by names in lower case, or whatever their case if the mapping ignores it. data:
        False for files of the program, which are public and need no token.
        """
        host = str(headers.get("host") or "").lower()
        if not data:
            return None if self._knows(host) else _unknown(host)
        if not _of_this_site(headers, host):
            return Refusal(
                status=HTTPStatus.FORBIDDEN, sentence="another site's page gets no answer here"
            )
        valid = self._tokens.let_in(headers.get("authorization") or "")
        if not valid:
            return Refusal(status=HTTPStatus.UNAUTHORIZED, sentence="bearer token missing or wrong")
        if not self._tokens and not self._knows(host):
            return _unknown(host)
        if _has_body(headers) and _media_type(headers) != JSON:
            return Refusal(
                status=HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
                sentence=f"the body must be JSON: send it with Content-Type: {JSON}",
            )
        return None

    def _knows(self, host: str) -> bool:
        found = _HOST.fullmatch(host)
        if found is None:
            return False
        if found["name"] in self._names:
            return True
        try:
            ipaddress.ip_address(found["name"].strip("[]"))
        except ValueError:
            return False
        return True


def names_of(listen: str) -> set[str]:
    """Names by which clients may call a server that listens on "host:port"."""
    host = listen.rpartition(":")[0].strip("[]")
    if is_local(listen):
        return {host}
    name = socket.gethostname()
    return {host, name, socket.getfqdn(name)}


def asgi_headers(scope: Mapping[str, Any]) -> dict[str, str]:
    """The headers of an ASGI request; bytes that are not UTF-8 become surrogates."""
    return {
        name.decode("latin-1"): value.decode("utf-8", "surrogateescape")
        for name, value in scope["headers"]
    }


def _of_this_site(headers: Headers, host: str) -> bool:
    site = headers.get("sec-fetch-site") or ""
    if site not in _SITES:
        return False
    origin = headers.get("origin")
    if site == "same-origin" or origin is None:
        return True
    scheme, _, where = str(origin).lower().partition("://")
    port = _PORTS.get(scheme, "")
    return bool(port) and where.removesuffix(port) == host.removesuffix(port)


def _has_body(headers: Headers) -> bool:
    length = str(headers.get("content-length") or "0").strip()
    return length != "0" or bool(headers.get("transfer-encoding"))


def _media_type(headers: Headers) -> str:
    return str(headers.get("content-type") or "").partition(";")[0].strip().lower()


def _unknown(host: str) -> Refusal:
    return Refusal(
        status=HTTPStatus.MISDIRECTED_REQUEST,
        sentence=f"this server is not known by the name {host[:200]!r}: use its address in "
        "numbers, or set and send a bearer token",
    )
