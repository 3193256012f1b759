"""Proxies that the environment names. They apply to other machines, never to loopback.

Invariant: a sentence holds no user name and no password of a proxy.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass

from toolwright.rpc.options import is_local

GRPC_VARIABLES = ("grpc_proxy", "https_proxy", "http_proxy")
"""Variables that gRPC reads, in its order."""


def proxy_for(url: str) -> str | None:
    """The proxy for a request to `url`; None for loopback and for a host in `no_proxy`."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if is_local(f"{host}:0"):
        return None
    found = getproxies_environment()
    if proxy_bypass(host):
        return None
    proxy = found.get(parts.scheme) or found.get("all")
    if not proxy:
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def shown(proxy: str) -> str:
    """The proxy's scheme, host and port."""
    parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def grpc_hint(details: str, environment: Mapping[str, str] = os.environ) -> str:
    """A sentence's end that names the proxy which gRPC did not get through; "" where the details of
    a failed RPC do not speak of one."""
    for variable in GRPC_VARIABLES:
        proxy = environment.get(variable)
        if not proxy:
            continue
        address = shown(proxy).partition("://")[2]
        port = address.rpartition(":")[2]
        if "proxy" in details.lower() or address in details or f":{port}:" in f"{details}:":
            return (
                f"; gRPC goes through the proxy {shown(proxy)} of {variable}: add the host to "
                "no_proxy if it is reached directly"
            )
        return ""
    return ""
