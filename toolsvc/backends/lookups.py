"""Names of hosts that strangers chose, looked up beside each other.

Invariants
- A name server that does not answer keeps a thread for each name that waits for it, and nothing
  else: neither the event loop's few threads, by which the service finds its own backends, nor
  lookups of other names.
- At most `at_once` are under way, given up ones among them: the system's resolver cannot be
  stopped, only left behind. More wait in line.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Any

from aiohttp.abc import AbstractResolver, ResolveResult

from toolwright.process.daemon import start_daemon

_NUMERIC = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV


class Lookups(AbstractResolver):
    """To be made in a running loop. A resolver for aiohttp's connectors."""

    def __init__(self, at_once: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._places = asyncio.Semaphore(at_once)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Raises OSError if the name has no address."""
        await self._places.acquire()
        found: asyncio.Future[Any] = self._loop.create_future()

        def look_up() -> None:
            try:
                flags = socket.AI_ADDRCONFIG
                infos: Any = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM, 0, flags)
            except (OSError, UnicodeError) as error:
                infos = error
            with contextlib.suppress(RuntimeError):  # The loop has closed meanwhile.
                self._loop.call_soon_threadsafe(self._tell, found, infos)

        try:
            # A daemon: the service's end waits for no name server.
            start_daemon(look_up, "lookup")
        except RuntimeError as error:
            self._places.release()
            raise OSError(f"no thread to look {host} up in: {error}") from error
        return [
            ResolveResult(
                hostname=host, host=address[0], port=port, family=kind, proto=number, flags=_NUMERIC
            )
            for kind, _, number, _, address in await found
        ]

    async def close(self) -> None:
        """What is under way ends by itself."""

    def _tell(self, found: asyncio.Future[Any], infos: Any) -> None:
        self._places.release()
        if found.done():
            return
        if isinstance(infos, Exception):
            found.set_exception(infos if isinstance(infos, OSError) else OSError(str(infos)))
        else:
            found.set_result(infos)
