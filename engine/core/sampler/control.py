"""Weights on every sampler: pause, update, verify, continue; and order at the engine's start.

Weights come from a folder here; over a group of processes in `update_group.py`.

Invariants
- After `publish` returned, every server that is up answers with the new version.
- A server that did not make it is set aside until `bring_up` gave it the newest version. While that
  has no folder yet, since it came over a group, the server waits for it.
- No server waits for another one's weights, and none stays paused, whatever fails.
- A server that had weights of this run in this life, and has a lineage now that is not this run's,
  is another run's too: this one ends instead of taking it back.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import structlog

from engine.core.sampler.fleet import Fleet
from engine.core.sampler.server import Server
from engine.core.sampler.wire.client import ServerRefused, ServerUnreachable
from engine.core.sampler.wire.events import WireError
from engine.errors import PublishFailed, SharedSampler
from toolwright.types import WeightVersion

GRACE_SECONDS = 10.0
GRACE_SHARE = 3.0
"""A server that is still not done so long after the first one, and not in three times its time, is
set aside: the others' trajectories and the learner wait no longer for it."""
RESUME_SECONDS = 5.0
"""For the call that ends a pause, of a server that was given up: it may hang."""
LOOK_SECONDS = 0.1
"""Between looks whether a server came back, while none is up to take a publish."""

log = structlog.get_logger("weights")


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What a publish did: servers at the new version, seconds that they stood still."""

    samplers: int
    paused_s: float


class WeightControl:
    """Owns which version the samplers have. One publish at a time, by its own lock."""

    def __init__(self, fleet: Fleet, *, pause_mode: str) -> None:
        self.fleet = fleet
        self.mode = pause_mode
        self._lock = asyncio.Lock()
        self._newest: WeightVersion | None = None
        self._folders: dict[WeightVersion, Path] = {}
        self._lineages: set[str] = set()
        """All that this life of the engine had a version of."""
        self._had: set[Server] = set()
        """Servers that had weights of this run in this life."""
        self._no_group = asyncio.Event()
        """No publish over a group is open."""
        self._no_group.set()
        self._may_load = asyncio.Event()
        """The same, and the newest version has a folder."""
        self._left: dict[Server, str] = {}
        """Groups that servers are still in although their publish is over."""
        self._refusal: ServerRefused | None = None
        """What a server that came back said to the newest version."""
        fleet.bring_up = self.bring_up

    async def put_in_order(self, version: WeightVersion, path: Path) -> None:
        """Before any admission: old requests aborted, pauses ended, everyone at `version`.

        A server that does not get there is set aside. PublishFailed when none gets there.
        """
        async with self._lock:
            self._set(version, path)
            there = [server for server in self.fleet.servers if server.info is not None]
            errors = await each(there, self._start_over)
            for server in there:
                if server in errors:
                    self.fleet.mark_down(server, str(errors[server]))
                else:
                    self.fleet.mark_up(server)
            if not self.fleet.any_up:
                raise PublishFailed(
                    "; ".join(
                        f"sampler {server.name} did not take the weights {path}: {server.why}"
                        for server in self.fleet.servers
                    )
                )

    async def publish(self, version: WeightVersion, path: Path) -> Published:
        """Brings every server that is up to `version`.

        A server that refuses the weights, or does not answer, is set aside while another one took
        them. While no server is up it waits for the first that comes back. PublishFailed when
        every server that answers refuses them; then all get the previous version back.
        """
        async with self._lock:
            previous = self._newest
            self._set(version, path)
            servers = [server for server in self.fleet.servers if server.up.is_set()]
            began = time.monotonic()
            errors = await each(servers, self._update)
            for server, error in errors.items():
                self.fleet.mark_down(server, str(error))
            refused = [error for error in errors.values() if isinstance(error, ServerRefused)]
            if len(errors) == len(servers):
                await self._wait_for_one(refused, previous, path)
                return Published(
                    samplers=len(self.fleet.names_up), paused_s=time.monotonic() - began
                )
            return Published(samplers=len(servers) - len(errors), paused_s=time.monotonic() - began)

    @property
    def has_folder(self) -> bool:
        """The newest version can be given to servers that come back."""
        return self._newest in self._folders

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """No other publish, and no server comes up, in the body: a publish over a group."""
        async with self._lock:
            self._no_group.clear()
            self._look()
            try:
                yield
            finally:
                self._no_group.set()
                self._look()

    def served(self, version: WeightVersion, servers: Iterable[Server]) -> None:
        """Servers have `version`, which came over a group. Its folder follows: `name_folder`."""
        for server in servers:
            server.version = version
            self._had.add(server)
        self._newest = version
        self._lineages.add(version.lineage)
        self._look()

    def name_folder(self, version: WeightVersion, path: Path) -> None:
        """The weights of `version` lie in `path`: servers that come back may be given them."""
        self._folders[version] = path
        self._look()

    def left_in(self, server: Server, group: str) -> None:
        """The server could not be told to leave `group`; it is told when it is brought up."""
        self._left[server] = group

    async def bring_up(self, server: Server) -> None:
        """Gives a server that came back the newest version, then lets requests to it.

        Waits while that has no folder. ServerUnreachable, ServerRefused or WireError when the
        server does not take it, SharedSampler where another run has it.
        """
        while True:
            await self._may_bring_up(server)
            if server.up.is_set():  # it was in the group whose publish ended meanwhile
                return
            tried = self._newest
            await self._refuse_to_share(server)
            try:
                await self._start_over(server)
            except ServerRefused as error:
                if tried == self._newest:
                    self._refusal = error
                raise
            if tried == self._newest and self._may_load.is_set():  # no publish began meanwhile
                break
        self.fleet.mark_up(server)
        log.info("sampler_up", server=server.name, version=str(self._newest))

    async def _refuse_to_share(self, server: Server) -> None:
        """SharedSampler. A server that was started anew has a version that is none of a run's."""
        if server not in self._had:
            return
        found = await server.client.weight_version()
        try:
            lineage = WeightVersion.parse(found).lineage
        except ValueError:
            return
        if lineage not in self._lineages:
            raise SharedSampler(
                f"somebody else changed the weights of {server.name} (they are {found} now, and "
                f"were this run's): another run uses this sampler; give each run its own "
                "sampler.endpoints, then start the same command again"
            )

    async def _may_bring_up(self, server: Server) -> None:
        await self._no_group.wait()
        if not self._may_load.is_set():
            self.fleet.mark_down(
                server, f"it waits for the folder of {self._newest}, which came over a group"
            )
        await self._may_load.wait()

    def _set(self, version: WeightVersion, path: Path) -> None:
        self._newest = version
        self._lineages.add(version.lineage)
        self._folders[version] = path
        self._refusal = None
        self.fleet.known[str(version)] = version
        self._look()

    def _look(self) -> None:
        if self.has_folder and self._no_group.is_set():
            self._may_load.set()
        else:
            self._may_load.clear()

    async def _wait_for_one(
        self, refused: Sequence[ServerRefused], previous: WeightVersion | None, path: Path
    ) -> None:
        """Until a server has come back with the new version."""
        refusal = refused[0] if refused else None
        try:
            while refusal is None and not self.fleet.any_up:
                await asyncio.sleep(LOOK_SECONDS)
                refusal = self._refusal
        except asyncio.CancelledError:
            self._newest = previous
            self._look()
            raise
        if refusal is not None and not self.fleet.any_up:
            if self._newest is not None:  # nothing that was sampled under it counts
                del self.fleet.known[str(self._newest)]
            self._newest, self._refusal = previous, None
            self._look()
            raise PublishFailed(f"weights {path}: {refusal}")

    async def _update(self, server: Server) -> None:
        async with server.control:
            server.pause()
            try:
                await server.client.pause(self.mode)
                await self._load(server, flush_cache=self.mode != "in_place")
            finally:
                try:
                    async with asyncio.timeout(RESUME_SECONDS):
                        await server.client.resume()
                except TimeoutError as error:
                    raise ServerUnreachable(f"{server.name} does not end its pause") from error
                finally:
                    server.resume()

    async def _start_over(self, server: Server) -> None:
        async with server.control:
            await server.client.abort_all()
            await server.client.resume()
            await self._end_update(server)
            await self._load(server, flush_cache=True)

    async def _end_update(self, server: Server) -> None:
        """What a publish over a group left open, in this life of the engine or an earlier one."""
        with suppress(ServerRefused):  # there is none
            await server.client.end_update()
        if server in self._left:
            with suppress(ServerRefused):
                await server.client.leave_group(self._left[server])
            del self._left[server]

    async def _load(self, server: Server, *, flush_cache: bool) -> None:
        version = self._newest
        if version is None:
            raise ServerUnreachable("no version was ever published")
        path = self._folders[version]
        await server.client.update_from_disk(str(path), str(version), flush_cache=flush_cache)
        found = await server.client.weight_version()
        if found != str(version):
            raise ServerRefused(f"{server.name} serves {found!r} after an update to {version}")
        server.version = version
        self._had.add(server)


async def each(
    servers: Sequence[Server], change: Callable[[Server], Awaitable[None]]
) -> dict[Server, Exception]:
    """Changes all servers at once; what went wrong where. A straggler is given up."""

    async def one(server: Server) -> Exception | None:
        try:
            await change(server)
        except (ServerUnreachable, ServerRefused, WireError) as error:
            return error
        return None

    began = time.monotonic()
    tasks = {server: asyncio.create_task(one(server)) for server in servers}
    pending: set[asyncio.Task[Exception | None]] = set(tasks.values())
    deadline: float | None = None
    try:
        while pending and (deadline is None or time.monotonic() < deadline):
            left = None if deadline is None else max(deadline - time.monotonic(), 0)
            done, pending = await asyncio.wait(
                pending, timeout=left, return_when=asyncio.FIRST_COMPLETED
            )
            if deadline is None and any(task.result() is None for task in done):
                took = time.monotonic() - began
                deadline = time.monotonic() + max(GRACE_SECONDS, GRACE_SHARE * took)
    finally:
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
    late = time.monotonic() - began
    errors: dict[Server, Exception] = {}
    for server, task in tasks.items():
        error = (
            ServerUnreachable(f"{server.name} is not done after {late:.0f} s, others are")
            if task in pending
            else task.result()
        )
        if error is not None:
            errors[server] = error
    return errors
