"""The samplers of a run: which are up, which are set aside and why, and how they come back.

Invariants
- A server that was down is up again only by `bring_up`, which gives it the newest weights.
- No server waits for another: each is queried, brought up and given up by itself.
- While no server is up, the log says so every few seconds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import aiohttp
import structlog

from engine.core.sampler.routing import Router
from engine.core.sampler.server import Server
from engine.core.sampler.wire.client import (
    Load,
    SamplerClient,
    ServerRefused,
    ServerUnreachable,
)
from engine.core.sampler.wire.events import WireError
from engine.errors import StartupError
from toolwright.types import WeightVersion

PROBE_SECONDS = 1.0
"""Interval between probes of a server that is down."""
REFUSAL_SECONDS = 15.0
"""The same for a server that answers and refuses the weights: each try aborts its requests."""
START_SECONDS = 3.0
"""How long the start tolerates that no sampler answers: several processes may start together."""
SAY_SECONDS = 10.0
"""Interval between log lines while no sampler is up."""
LONG_STEP_SECONDS = 1800
"""A learner that has the samplers' memory for longer may be gone: the log's lines are warnings."""
RELEASED_FIX = "if the learner is gone, start it again: it hands the samplers' memory back"

log = structlog.get_logger("sampler")

Connect = Callable[[str], SamplerClient]
"""Makes the client of the server at a URL."""


class Fleet:
    """The servers by name. The weight control sets `bring_up` and `known`.

    silence: longest seconds without an event of a stream. sees: the policy reads images.
    """

    def __init__(
        self,
        endpoints: Sequence[str],
        *,
        silence: float,
        sees: bool,
        connect: Connect | None = None,
    ) -> None:
        """connect: None = HTTP, with one session for all servers."""
        self._endpoints = tuple(dict.fromkeys(url.rstrip("/") for url in endpoints))
        self._silence = silence
        self._sees = sees
        self._connect = connect or self._over_http
        self._session: aiohttp.ClientSession | None = None
        self._one_up = asyncio.Event()
        self._waiting = 0
        self._by_name: dict[str, Server] = {}
        self.router = Router()
        self.known: dict[str, WeightVersion] = {}
        """The versions that samplers got, by their spelling, in order. Tokens under others are
        refused."""
        self.bring_up: Callable[[Server], Awaitable[None]] | None = None
        self.memory_released = False
        """Whether the learner has the memory of the servers' GPUs: then no server is up."""
        self.changed: Callable[[], None] | None = None
        """Called after a change of a server's state or of `known`."""
        self.announce: Callable[[], Awaitable[None]] | None = None
        """Returns when every process that samples beside this one knows the present state."""

    @property
    def servers(self) -> tuple[Server, ...]:
        return tuple(self._by_name.values())

    def named(self, name: str) -> Server:
        return self._by_name[name]

    async def open(self) -> None:
        """Queries every endpoint. An endpoint that does not answer is set aside if others do.

        Raises StartupError if no endpoint answers, or if one reads no images and the policy does.
        """
        for url in self._endpoints:
            self._add(url)
        deadline = time.monotonic() + START_SECONDS
        while True:
            await asyncio.gather(*(self._meet(server) for server in self.servers))
            if any(server.info is not None for server in self.servers):
                break
            if time.monotonic() > deadline:
                raise StartupError(
                    "; ".join(
                        f"sampler {server.name} is down or is not an SGLang server ({server.why})"
                        for server in self.servers
                    )
                    + "; start it or correct sampler.endpoints"
                )
            await asyncio.sleep(0.2)
        for server in self.servers:
            if server.info is None:
                log.warning("sampler_set_aside", server=server.name, why=server.why)
            elif not self._can_see(server):
                raise StartupError(_blind(server))

    def _add(self, url: str) -> None:
        server = Server(self._connect(url))
        server.changed = self._report_change
        self._by_name[server.name] = server
        self.router.add(server.name)

    def _report_change(self) -> None:
        if self.changed is not None:
            self.changed()

    async def abort(self, prefix: str) -> None:
        """Aborts the requests whose ids begin with `prefix`, at all servers that answer."""

        async def one(server: Server) -> None:
            try:
                await server.client.abort(prefix)
            except (ServerUnreachable, ServerRefused, WireError) as error:
                log.info("abort_failed", server=server.name, error=str(error))

        await asyncio.gather(*(one(server) for server in self.servers))

    async def announced(self) -> None:
        """Returns when every process that samples knows the present state. Call it after a change
        of `known` and before a server gets the version."""
        if self.announce is not None:
            await self.announce()

    async def close(self) -> None:
        """Closes the connections."""
        for server in self.servers:
            server.client.close()
        if self._session is not None:
            await self._session.close()

    def _over_http(self, url: str) -> SamplerClient:
        if self._session is None:
            # A connection that went silent since the last call would hold a publish for minutes.
            connector = aiohttp.TCPConnector(limit=0, force_close=True)
            self._session = aiohttp.ClientSession(connector=connector)
        return SamplerClient(url, self._session, silence=self._silence)

    @property
    def longest_prompt(self) -> int | None:
        """Tokens of a prompt that fits the smallest context; None if no server reports it."""
        limits = [s.info.max_input_tokens for s in self.servers if s.info is not None]
        return min((tokens for tokens in limits if tokens), default=None)

    @property
    def any_up(self) -> bool:
        return self._one_up.is_set()

    @property
    def names_up(self) -> list[str]:
        return [server.name for server in self._by_name.values() if server.up.is_set()]

    async def wait_for_one(self) -> None:
        """Returns when a server is up. `keep_alive` logs meanwhile how many callers wait."""
        self._waiting += 1
        try:
            await self._one_up.wait()
        finally:
            self._waiting -= 1

    def statistics(self) -> Mapping[str, Mapping[str, Any]]:
        """Statistics by server.

        `up`, `why` it is not; `in_flight` requests; `queued` tokens that those will likely bring;
        `received` tokens; `seconds_a_token` of one stream, None before the first; `cache_use`, a
        share, None if it is not watched; `failures` by kind.
        """
        return {
            server.name: {
                "up": server.up.is_set(),
                "why": "" if server.up.is_set() else server.why,
                "in_flight": len(server.flights),
                "queued": max(round(self.router.loads[server.name].queued), 0),
                "received": server.received,
                "seconds_a_token": self.router.loads[server.name].pace,
                "cache_use": None if server.load is None else server.load.cache_use,
                "failures": {str(fault): count for fault, count in server.faults.items()},
            }
            for server in self.servers
        }

    async def look(self) -> Sequence[Load]:
        """The loads of the servers that are up and report one. A server that does not answer in
        time keeps its last load: its cache is as large as before."""

        async def one(server: Server) -> None:
            try:
                server.load = await server.client.load()
            except ServerRefused:
                pass
            except (ServerUnreachable, WireError) as error:
                if not server.load_answered:
                    log.warning("load_not_read", server=server.name, error=str(error))
                return
            server.load_answered = True

        up = [server for server in self.servers if server.up.is_set()]
        await asyncio.gather(*(one(server) for server in up))
        return [server.load for server in up if server.load is not None]

    @property
    def loads_answered(self) -> bool:
        """Whether a server is up, and each one that is up has answered a look."""
        up = [server for server in self.servers if server.up.is_set()]
        return bool(up) and all(server.load_answered for server in up)

    def can_have(self, name: str, given: WeightVersion | None) -> bool:
        """Whether a server that got `given` may have the weights `name`: those, or later ones of
        this run. A server with older weights was restarted."""
        if name not in self.known or given is None or str(given) not in self.known:
            return name in self.known
        order = list(self.known)
        return name == str(given) or order.index(name) > order.index(str(given))

    def mark_up(self, server: Server) -> None:
        """Admits requests to a server that has the newest weights."""
        self.router.fresh(server.name)
        server.up.set()
        self._one_up.set()
        self._report_change()

    def mark_down(self, server: Server, why: str, *, planned: bool = False) -> None:
        """Sets a server aside: it gets no request until it was brought up again. planned: nothing
        failed."""
        if not planned and (server.up.is_set() or server.why != why):
            log.warning("sampler_set_aside", server=server.name, why=why)
        server.why = why
        server.load, server.load_answered = None, False
        server.up.clear()
        if not any(other.up.is_set() for other in self.servers):
            self._one_up.clear()
        self._report_change()

    async def keep_alive(self) -> None:
        """Brings servers that went down back up once they answer. Runs until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for server in self.servers:
                tasks.create_task(self._keep(server))
            tasks.create_task(self._say())

    async def _keep(self, server: Server) -> None:
        pause = PROBE_SECONDS
        while True:
            await asyncio.sleep(pause)
            pause = PROBE_SECONDS
            if server.up.is_set():
                continue
            try:
                await self._bring_back(server)
            except (ServerUnreachable, ServerRefused, WireError) as error:
                if isinstance(error, ServerRefused):
                    pause = REFUSAL_SECONDS
                if not server.up.is_set():  # a publish may have brought it up meanwhile
                    self.mark_down(server, str(error))

    async def _bring_back(self, server: Server) -> None:
        server.info = await server.client.info()
        if not self._can_see(server):
            raise ServerRefused(_blind(server))
        if self.bring_up is not None:
            await self.bring_up(server)

    async def _say(self) -> None:
        while True:
            await self._one_up.wait()
            await asyncio.sleep(PROBE_SECONDS)
            since = time.monotonic()
            while not self.any_up:
                seconds = round(time.monotonic() - since)
                if self.memory_released:
                    log_line = log.info if seconds < LONG_STEP_SECONDS else log.warning
                    log_line(
                        "memory_lent", seconds=seconds, waiting=self._waiting, fix=RELEASED_FIX
                    )
                else:
                    log.warning(
                        "no_sampler_up",
                        seconds=seconds,
                        waiting=self._waiting,
                        why={server.name: server.why for server in self.servers},
                    )
                await asyncio.sleep(SAY_SECONDS)

    async def _meet(self, server: Server) -> None:
        try:
            server.info = await server.client.info()
        except (ServerUnreachable, ServerRefused, WireError) as error:
            server.why = str(error)

    def _can_see(self, server: Server) -> bool:
        """Whether the server reads images, or the run has none."""
        return not self._sees or (server.info is not None and server.info.reads_images)


def _blind(server: Server) -> str:
    return (
        f"sampler {server.name} reads no images, but policy.model does: start it with that "
        "folder, or one of its architecture"
    )
