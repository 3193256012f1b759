"""Forms of addresses, and the error message for a wrong address. Pure."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

_HOST_PORT = re.compile(r"(?:\[[0-9a-fA-F:.%\w]+\]|[^\s:/@\[\]]+):(\d{1,5})")
_SCHEMES = ("unix:", "unix-abstract:", "dns:", "ipv4:", "ipv6:")
LARGEST_PORT = 65_535
PATHS = ("/v1", "/generate", "/health", "/model_info")
"""Paths that users copy from settings of other clients; the engine adds them itself."""


def grpc_fault(address: str) -> str:
    """Why gRPC cannot use this address, with the fix; "" if it can."""
    if address.startswith(_SCHEMES):
        return ""
    bare = address.partition("://")[2].partition("/")[0] if "://" in address else address
    found = _HOST_PORT.fullmatch(bare)
    if found is None or int(found[1]) > LARGEST_PORT:
        return f'{address!r} is not an address: write "HOST:PORT", or "unix:/path"'
    if bare != address:
        return f'{address!r} is a URL, and this is gRPC: write "{bare}"'
    return ""


def _authority(url: str) -> str:
    """The part before the path; the whole text if that is not a host, since a password may have a
    slash."""
    _, found, rest = url.partition("://")
    host, _, _ = (rest if found else url).partition("/")
    try:
        plain = urlsplit(f"//{host}").port is not None or ":" not in host
    except ValueError:
        plain = False
    return host if plain else url


def is_url(text: str) -> bool:
    """Whether a key that takes a path or a server names a server."""
    return text.startswith(("http://", "https://"))


def url_fault(url: str) -> str:
    """Why this is not the URL of a server, with the fix; "" if it is."""
    wanted = 'write "http://HOST:PORT"'
    # First, and without the address: the sentences below show it, and they end in logs.
    if "@" in _authority(url):
        return (
            "an address with a user or password before an @ would be written into logs and "
            "settings: leave them out; a sampler's key goes into the environment variable of "
            "sampler.key_env"
        )
    if not is_url(url):
        if _HOST_PORT.fullmatch(url.rstrip("/")):
            wanted = f'write "http://{url.rstrip("/")}"'
        return f"{url!r} is not a URL: {wanted}"
    try:
        parts = urlsplit(url)
        named = bool(parts.hostname) and (parts.port is None or parts.port <= LARGEST_PORT)
    except ValueError:
        named = False
    if not named or any(sign.isspace() for sign in url):
        return f"{url!r} is not a URL: {wanted}"
    if parts.query or parts.fragment:
        return f'{url!r} has more than a server: write "{parts.scheme}://{parts.netloc}"'
    path = parts.path.rstrip("/")
    for known in PATHS:
        if path.endswith(known):
            kept = path.removesuffix(known)
            return (
                f"{url!r} ends in {known}, which the engine adds where it belongs: write "
                f'"{parts.scheme}://{parts.netloc}{kept}"'
            )
    return ""
