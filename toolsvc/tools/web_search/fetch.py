"""Fetches a page that the policy, or a stranger, has named.

Invariants
- A connection is made only to a public address, or to a host that the operator allows. The address
  is checked at the moment of connecting, so neither a redirect nor a second answer of the name
  server leads elsewhere.
- A fetch is bounded in its time, its redirects and its bytes. The number of fetches at once is
  bounded, in all and for each host. The time does not run while a fetch waits for its turn.
- Every client error that an address or an answer causes is PageUnreadable.
- A name server that does not answer is slow for its own names alone (`backends.lookups`).
- Only text is read. No cookies, no credentials, no proxy of the environment.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from weakref import WeakValueDictionary

import aiohttp
from aiohttp.connector import AddrInfoType
from yarl import URL

from toolsvc.backends.lookups import Lookups
from toolsvc.tools.web_search.types import PageUnreadable

_NAT64 = IPv6Network("64:ff9b::/96")


def is_public(address: str) -> bool:
    """Whether an address is of the public internet: not loopback, private, link-local (where clouds
    keep credentials), shared, multicast or reserved, nor an IPv6 form of such an address. The
    policy or a stranger's redirect chooses it, and it could name a machine of the operator's own
    network (server-side request forgery)."""
    plain = ip_address(address.partition("%")[0])
    if isinstance(plain, IPv6Address):
        if plain.sixtofour is not None:
            return False  # Obsolete (RFC 7526), and of use only to get around this.
        if plain in _NAT64:
            plain = IPv4Address(int(plain) & 0xFFFFFFFF)
        else:
            plain = plain.ipv4_mapped or plain
    return plain.is_global and not plain.is_multicast and not plain.is_reserved


async def read_body(response: aiohttp.ClientResponse, most: int) -> bytes:
    """First `most` bytes of an answer that may never end, unpacked."""
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) >= most:
            break
    return bytes(body[:most])


FETCH_SECONDS = 15.0
MOST_BYTES = 2 << 20
"""Maximum size of a page, unpacked, in bytes; the rest is not read."""
MOST_REDIRECTS = 5
_AT_ONCE = 32
_AT_ONCE_OF_A_HOST = 4
_LOOKUPS = 3 * _AT_ONCE
"""Lookups at once. A fetch gives up after 15 s, the system's resolver after up to 30 s. So twice
the fetches suffice for no fetch to wait for a lookup; a third part is reserve."""
_MARKUP = ("text/html", "application/xhtml+xml")
_PLAIN = ("application/json", "application/xml")
_REDIRECTS = (
    HTTPStatus.MOVED_PERMANENTLY,
    HTTPStatus.FOUND,
    HTTPStatus.SEE_OTHER,
    HTTPStatus.TEMPORARY_REDIRECT,
    HTTPStatus.PERMANENT_REDIRECT,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    url: str
    """Final address, after redirects."""
    body: bytes
    charset: str | None
    markup: bool
    """HTML; plain text otherwise."""


class _NotPublic(OSError):
    pass


def _public_socket(info: AddrInfoType) -> socket.socket:
    family, kind, protocol, _, address = info
    if not is_public(str(address[0])):
        raise _NotPublic
    return socket.socket(family, kind, protocol)


class Fetcher:
    """Must be made in a running loop, and closed."""

    def __init__(self, allowed_hosts: Collection[str] = ()) -> None:
        """`allowed_hosts`: names or addresses, with `:port` or for all ports, that may be fetched
        from wherever they are."""
        self._allowed = frozenset(host.lower() for host in allowed_hosts)
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._places_of: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        """Places by host; removed with the last fetch that holds or awaits one."""
        # Without limits of their own: a queue there would use up the time of a fetch.
        lookups = Lookups(_LOOKUPS)
        self._public = _session(
            aiohttp.TCPConnector(limit=0, resolver=lookups, socket_factory=_public_socket)
        )
        self._any = _session(aiohttp.TCPConnector(limit=0, resolver=lookups))

    async def close(self) -> None:
        await self._public.close()
        await self._any.close()

    async def fetch(self, address: str) -> Fetched:
        """The page. Raises PageUnreadable, with a message for the policy, if there is nothing to
        read."""
        left = FETCH_SECONDS
        try:
            url = _checked(address)
            for _ in range(MOST_REDIRECTS + 1):
                async with self._place(url.host or ""):
                    began = time.monotonic()
                    async with asyncio.timeout(left):
                        found = await self._get(url)
                    left -= time.monotonic() - began
                if isinstance(found, Fetched):
                    return found
                url = found
        except TimeoutError:
            raise PageUnreadable(f"the page did not come within {FETCH_SECONDS:g} s") from None
        except aiohttp.ClientConnectorDNSError:
            raise PageUnreadable("there is no such host") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            if isinstance(error.__cause__, _NotPublic):
                raise PageUnreadable("the address is not of the public web") from None
            raise PageUnreadable("the page cannot be fetched") from error
        raise PageUnreadable(f"the page redirects more than {MOST_REDIRECTS} times")

    @asynccontextmanager
    async def _place(self, host: str) -> AsyncIterator[None]:
        """Waits for the host's place first: a fetch that waits there does not take a common
        place."""
        of_host = self._places_of.get(host)
        if of_host is None:
            of_host = self._places_of[host] = asyncio.Semaphore(_AT_ONCE_OF_A_HOST)
        async with of_host, self._places:
            yield

    async def _get(self, url: URL) -> Fetched | URL:
        """The page, or the address that it redirects to."""
        session = self._any if self._is_allowed(url) else self._public
        async with session.get(url, allow_redirects=False) as response:
            target = response.headers.get("Location")
            if response.status in _REDIRECTS and target is not None:
                return _checked(target, url)
            if response.status != HTTPStatus.OK:
                raise PageUnreadable(f"the page answered {response.status}")
            kind = response.content_type
            if not (kind.startswith("text/") or kind in _MARKUP or kind in _PLAIN):
                raise PageUnreadable(f"the page is {kind}, not text")
            return Fetched(
                url=str(url),
                body=await read_body(response, MOST_BYTES),
                charset=response.charset,
                markup=kind in _MARKUP,
            )

    def _is_allowed(self, url: URL) -> bool:
        host = (url.host or "").lower()
        return host in self._allowed or f"{host}:{url.port}" in self._allowed


def _session(connector: aiohttp.TCPConnector) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={
            "User-Agent": "Mozilla/5.0 (compatible; toolwright)",
            "Accept": "text/html,text/*",
        },
        timeout=aiohttp.ClientTimeout(total=None),  # `fetch` bounds all redirects together
    )


def _checked(address: str, base: URL | None = None) -> URL:
    try:
        url = URL(address) if base is None else base.join(URL(address))
        port = url.port
    except ValueError:
        url, port = URL(), None
    if url.scheme not in ("http", "https") or not url.host or not port or url.user or url.password:
        raise PageUnreadable(f"{address[:200]!r} is no address of a page: write https://...")
    return url
