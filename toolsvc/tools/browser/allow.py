"""Which hosts a browser may reach; pure.

Chromium's network stack enforces the list: it connects directly to listed hosts, and sends all
other requests to a proxy that takes no connection. So the list covers every kind of request
(redirect, frame, web socket, popup, prefetch), and no other name is ever looked up. `permits`
repeats the check for addresses that a policy writes, so that the policy reads a reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

_HOST = re.compile(r"(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*|\[[0-9a-f:.]+\]")
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class AllowedHost:
    """`host`, `*.host` for all names below it, or an address; with a port, that port alone."""

    host: str
    port: int | None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ValueError if the text names no host."""
        host, colon, port = text.lower().rpartition(":")
        if not colon or host.count("[") > host.count("]"):
            host, colon, port = text.lower(), "", ""
        digits = port.isascii() and port.isdigit() and 0 < int(port) < 65536
        if not _HOST.fullmatch(host) or (colon and not digits):
            raise ValueError(
                f"{text!r} is no host: write example.org, *.example.org or 127.0.0.1:8080"
            )
        return cls(host, int(port) if colon else None)

    def covers(self, host: str, port: int | None) -> bool:
        if self.port not in (None, port):
            return False
        return host.endswith(self.host[1:]) if self.host.startswith("*.") else host == self.host

    def __str__(self) -> str:
        return self.host if self.port is None else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class AllowList:
    """Hosts that may be reached, by http, https, ws and wss."""

    entries: tuple[AllowedHost, ...]

    @classmethod
    def parse(cls, hosts: Iterable[str]) -> Self:
        """Raises ValueError if there is no host, or if a text names none."""
        entries = tuple(AllowedHost.parse(host.strip()) for host in hosts)
        if not entries:
            raise ValueError("name the hosts that may be reached")
        return cls(entries)

    def permits(self, url: str) -> bool:
        """Whether a policy may navigate there: http or https, to a host of the list."""
        try:
            parts = urlsplit(url)
            port = parts.port or _PORTS.get(parts.scheme)
        except ValueError:
            return False
        host = parts.hostname or ""
        if ":" in host:
            host = f"[{host}]"
        return parts.scheme in _PORTS and any(entry.covers(host, port) for entry in self.entries)

    def switches(self, refusing: str) -> list[str]:
        """Chromium's arguments; `refusing`: host:port where every connection is refused. Loopback
        and link-local addresses would bypass a proxy by default: `<-loopback>` prevents that."""
        direct = ";".join(["<-loopback>", *map(str, self.entries)])
        return [f"--proxy-server={refusing}", f"--proxy-bypass-list={direct}"]

    def __str__(self) -> str:
        return ", ".join(map(str, self.entries))
