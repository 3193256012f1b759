"""Weights on every sampler: pause, update, verify, continue; and order at the engine's start.

Invariants
- After `publish` returned, every server that is up answers with the new version.
- A server that did not make it is down until `bring_up` gave it the newest version.
- No server stays paused, whatever fails.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path

import structlog

from engine.errors import PublishFailed
from engine.sampler.client import ServerRefused, ServerUnreachable
from engine.sampler.pool import SamplerPool, Server
from engine.sampler.wire import WireError
from toolwright.types import WeightVersion

log = structlog.get_logger("weights")


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What a publish did: servers at the new version, seconds that they stood still."""

    samplers: int
    paused_s: float


class WeightControl:
    """Owns which version the samplers have. One publish at a time, by its own lock."""

    def __init__(self, pool: SamplerPool, *, pause_mode: str) -> None:
        self._pool = pool
        self._mode = pause_mode
        self._lock = asyncio.Lock()
        self.version: WeightVersion | None = None
        self.path: Path | None = None
        pool.bring_up = self.bring_up

    async def put_in_order(self, version: WeightVersion, path: Path) -> None:
        """Before any admission: old requests aborted, pauses ended, everyone at `version`.

        PublishFailed when a server cannot be brought there.
        """
        async with self._lock:
            self.version, self.path = version, path
            for server in self._pool.servers:
                try:
                    await self._start_over(server)
                except (ServerUnreachable, ServerRefused, WireError) as error:
                    raise PublishFailed(
                        f"sampler {server.client.url} did not take the weights {path}: {error}"
                    ) from error
                server.up.set()

    async def publish(self, version: WeightVersion, path: Path) -> Published:
        """Brings every server that is up to `version`.

        PublishFailed when a server refuses the weights or none is left; servers that do not
        answer go down and get the version when they are back.
        """
        async with self._lock:
            previous = (self.version, self.path)
            self.version, self.path = version, path
            servers = [server for server in self._pool.servers if server.up.is_set()]
            began = time.monotonic()
            results = await asyncio.gather(*(self._update(s) for s in servers))
            refused = [error for error in results if isinstance(error, ServerRefused)]
            done = sum(result is None for result in results)
            if refused or done == 0:
                self.version, self.path = previous
                for server in servers:  # whatever each has now: it gets the previous version back
                    self._pool.mark_down(server)
            if refused:
                raise PublishFailed(f"weights {path}: {refused[0]}")
            if done == 0:
                raise PublishFailed(f"no sampler took version {version}; are they running?")
            return Published(samplers=done, paused_s=time.monotonic() - began)

    async def bring_up(self, server: Server) -> None:
        """Gives a server that came back the newest version, then lets requests to it."""
        async with self._lock:
            await self._start_over(server)
            server.up.set()
            log.info("sampler_up", server=server.client.url, version=str(self.version))

    async def _update(self, server: Server) -> Exception | None:
        try:
            await server.client.pause(self._mode)
            try:
                await self._load(server, flush_cache=self._mode != "in_place")
            finally:
                await server.client.resume()
        except ServerRefused as error:
            return error
        except (ServerUnreachable, WireError) as error:
            self._pool.mark_down(server)
            return error
        return None

    async def _start_over(self, server: Server) -> None:
        await server.client.abort_all()
        await server.client.resume()
        await self._load(server, flush_cache=True)

    async def _load(self, server: Server, *, flush_cache: bool) -> None:
        if self.version is None or self.path is None:
            raise PublishFailed("no version was ever published")
        await server.client.update_from_disk(
            str(self.path), str(self.version), flush_cache=flush_cache
        )
        found = await server.client.weight_version()
        if found != str(self.version):
            raise ServerRefused(
                f"{server.client.url} serves {found!r} after an update to {self.version}"
            )
