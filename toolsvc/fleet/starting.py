"""From a request for a host to a host that answers, and the list of these hosts."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

from toolsvc.fleet.hosts import HostProcess, Wanted
from toolsvc.fleet.link import HostLink


class Starter:
    """Starts the hosts of one service and lists them."""

    def __init__(self, make: Callable[[Wanted], HostProcess], token: str) -> None:
        """`make`: makes a host without starting it. `token`: secret between front and hosts."""
        self._make = make
        self._token = token
        self._numbers = itertools.count()
        self._starting: set[HostProcess] = set()
        self._started: list[HostLink] = []

    @property
    def hosts(self) -> list[HostLink]:
        """Hosts that were started and are not given up."""
        self._started = [host for host in self._started if not host.lost]
        return list(self._started)

    async def start(self, wanted: Wanted) -> HostLink:
        """Starts a host as soon as there is room for it, however long that takes. Raises StartError
        with the host's own sentence, or if it died."""
        process = self._make(wanted)
        self._starting.add(process)
        try:
            ready = await process.start()
        except BaseException:
            await process.kill()
            self._starting.discard(process)
            raise
        self._starting.discard(process)
        host = HostLink(next(self._numbers), process, ready, self._token)
        self._started = [*self.hosts, host]
        return host

    async def end(self) -> None:
        """Drains every host, and kills hosts that are still starting."""
        starting = (process.kill() for process in self._starting)
        await asyncio.gather(*(host.end() for host in self.hosts), *starting)
