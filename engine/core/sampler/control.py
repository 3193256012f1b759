"""Weights on every sampler: pause, update, verify, continue; and the order at the engine's start.

Weights come from a folder here, and over a process group in `update_group.py`. A run that
publishes adapters pauses no server (`adapters.py`).

Invariants
- After `publish` returned, every server that is up answers with the new version.
- A server that failed is set aside until `bring_up` gave it the newest version. It waits while that
  version has no folder yet, because it came over a group.
- No server waits for another one's weights, and none stays paused, whatever fails.
- While memory is released to the learner (`release_memory`), no server is up. A server that returns
  meanwhile releases its memory too. `publish` and `resume_memory` end it.
- A server can change lineage without this run's doing, after it had this run's weights in this
  life. Then another run uses it too, and this run ends instead of taking it back.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import structlog

from engine.core.sampler import adapters, memory
from engine.core.sampler.fleet import Fleet
from engine.core.sampler.server import Server
from engine.core.sampler.wire.client import ServerRefused, ServerUnreachable
from engine.core.sampler.wire.events import WireError
from engine.errors import PublishFailed, SharedSampler
from toolwright.types import WeightVersion

GRACE_SECONDS = 10.0
GRACE_SHARE = 3.0
"""Factor on the time of the first server that is done. A server that takes longer than that and
GRACE_SECONDS is set aside. Then the learner and the other trajectories do not wait for it."""
RESUME_SECONDS = 5.0
"""Timeout of the call that ends the pause of a server that was given up: it may hang."""
LOOK_SECONDS = 0.1
"""Interval between checks for a returning server while no server is up to take a publish."""

RELEASED = "the learner has its GPU's memory"
"""Why a server is set aside while it shares its GPU with a learner that trains."""

log = structlog.get_logger("weights")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishResult:
    """Result of a publish: servers at the new version, and seconds of their pause."""

    samplers: int
    paused_s: float


class WeightControl:
    """Owns the samplers' weight version. One publish at a time, by its own lock."""

    def __init__(
        self,
        fleet: Fleet,
        *,
        pause_mode: str,
        shares_gpu: bool = False,
        base: Path | None = None,
    ) -> None:
        """shares_gpu: the learner may have the servers' memory while it trains. base: folder of the
        frozen policy whose adapters are published; None if whole weights are."""
        self.fleet = fleet
        self.base = base
        self._shares_gpu = shares_gpu
        self.mode = pause_mode
        self._lock = asyncio.Lock()
        self._newest: WeightVersion | None = None
        self._folders: dict[WeightVersion, Path] = {}
        self._lineages: set[str] = set()
        """Lineages of which this life of the engine had a version."""
        self._had: set[Server] = set()
        """Servers that had weights of this run in this life."""
        self._no_group = asyncio.Event()
        """Set while no publish over a group is open."""
        self._no_group.set()
        self._may_load = asyncio.Event()
        """Set while, in addition, the newest version has a folder."""
        self._released: set[Server] = set()
        """Servers that released their memory to the learner."""
        self._left: dict[Server, str] = {}
        """Groups that servers have not left although their publish is over."""
        self._refusal: ServerRefused | None = None
        """Refusal of the newest version by a server that came back."""
        fleet.bring_up = self.bring_up

    async def initialise(self, version: WeightVersion, path: Path) -> None:
        """Runs before any admission: aborts old requests, ends pauses, brings every server to
        `version`.

        If a server has released its memory to a learner that may still train, all stay released.
        A server that fails is set aside. Raises PublishFailed if every server fails.
        """
        async with self._lock:
            self._set(version, path)
            there = [server for server in self.fleet.servers if server.info is not None]
            names = [server.info.weight_version for server in there if server.info is not None]
            if self._shares_gpu and any(name.startswith(memory.RELEASED) for name in names):
                await self._release(there)
                return
            errors = await change_each(there, self._start_over)
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

    async def publish(self, version: WeightVersion, path: Path) -> PublishResult:
        """Brings every server that is up to `version`.

        A server that refuses the weights, or does not answer, is set aside if another one took
        them. While no server is up, the call waits for the first that comes back. Raises
        PublishFailed if every server that answers refuses the weights; then all get the previous
        version back.
        """
        async with self._lock:
            previous = self._newest
            self._set(version, path)
            await self.fleet.announced()
            servers = [server for server in self.fleet.servers if server.up.is_set()]
            began = time.monotonic()
            if self.fleet.memory_released:
                servers, errors = await self._resume()
            else:
                errors = await change_each(servers, self._update)
                for server, error in errors.items():
                    self.fleet.mark_down(server, str(error))
            refused = [error for error in errors.values() if isinstance(error, ServerRefused)]
            samplers = len(servers) - len(errors)
            if samplers == 0:
                await self._wait_for_one(refused, previous, path)
                samplers = len(self.fleet.names_up)
            paused = self.base is None or self.mode == "abort"
            return PublishResult(
                samplers=samplers, paused_s=time.monotonic() - began if paused else 0.0
            )

    async def release_memory(self) -> int:
        """Has every server that is up release its memory, and sets it aside. Its requests go on
        after that. Returns the number of servers that released it."""
        async with self._lock:
            if not self.fleet.memory_released:
                await self._release([one for one in self.fleet.servers if one.up.is_set()])
            return len(self._released)

    async def resume_memory(self) -> int:
        """Brings every server that released its memory to the newest version. Returns the number of
        servers that are up."""
        async with self._lock:
            if self.fleet.memory_released:
                await self._resume()
            return len(self.fleet.names_up)

    async def _release(self, servers: Sequence[Server]) -> None:
        self.fleet.memory_released = True
        self._look()
        for server in servers:
            self.fleet.mark_down(server, RELEASED, planned=True)
            for flight in list(server.flights):
                flight.leave()
        for server, error in (await change_each(servers, self._release_one)).items():
            self.fleet.mark_down(server, str(error))
        log.info("memory_released", samplers=len(self._released))

    async def _release_one(self, server: Server) -> None:
        async with server.control:
            if not self.fleet.memory_released:  # resumed while a server that returned waited here
                return
            await memory.release(server.client)
            self.fleet.mark_down(server, RELEASED, planned=True)
            self._released.add(server)

    async def _resume(self) -> tuple[list[Server], dict[Server, Exception]]:
        """The servers that released their memory, and the errors of those that did not resume."""
        servers = list(self._released)
        # From here on no server releases its memory, and none loads by itself before `_look`.
        self.fleet.memory_released = False
        try:
            errors = await change_each(servers, self._start_over)
            for server in servers:
                if server in errors:
                    self.fleet.mark_down(server, str(errors[server]))
                else:
                    self.fleet.mark_up(server)
        finally:
            self._released.clear()
            self._look()
        log.info("memory_resumed", samplers=len(servers) - len(errors))
        return servers, errors

    @property
    def has_folder(self) -> bool:
        """Whether servers that come back can get the newest version."""
        return self._newest in self._folders

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        """Context of a publish over a group: no other publish runs, and no server comes up."""
        async with self._lock:
            self._no_group.clear()
            self._look()
            try:
                yield
            finally:
                self._no_group.set()
                self._look()

    def record_served(self, version: WeightVersion, servers: Iterable[Server]) -> None:
        """Records that servers have `version`, which came over a group. `name_folder` follows."""
        for server in servers:
            server.version = version
            self._had.add(server)
        self._newest = version
        self._lineages.add(version.lineage)
        self._look()

    def name_folder(self, version: WeightVersion, path: Path) -> None:
        """Records that the weights of `version` lie in `path`, for servers that come back."""
        self._folders[version] = path
        self._look()

    def still_in_group(self, server: Server, group: str) -> None:
        """Records that the server did not leave `group`. It leaves when it is brought up."""
        self._left[server] = group

    async def bring_up(self, server: Server) -> None:
        """Gives a server that came back the newest version, then admits requests to it.

        Waits while that version has no folder. Raises ServerUnreachable, ServerRefused or WireError
        if the server does not take it, SharedSampler if another run has it.
        """
        while True:
            if self.fleet.memory_released:
                await self._release_one(server)
            await self._may_bring_up(server)
            if server.up.is_set():  # it was in the group of a publish that ended meanwhile
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
        """Raises SharedSampler if another run changed the server's weights. A restarted server has
        a version that belongs to no run."""
        if server not in self._had:
            return
        found = await server.client.weight_version()
        try:
            lineage = WeightVersion.parse(found).lineage
        except ValueError:
            return
        if lineage not in self._lineages:
            raise SharedSampler(
                f"another run changed the weights of {server.name} (they are {found} now, and "
                f"were this run's): give each run its own "
                "sampler.endpoints, then start the same command again"
            )

    async def _may_bring_up(self, server: Server) -> None:
        await self._no_group.wait()
        if not self.has_folder:
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
        if self.has_folder and self._no_group.is_set() and not self.fleet.memory_released:
            self._may_load.set()
        else:
            self._may_load.clear()

    async def _wait_for_one(
        self, refused: Sequence[ServerRefused], previous: WeightVersion | None, path: Path
    ) -> None:
        """Waits until a server has come back with the new version."""
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
            if self._newest is not None:  # tokens sampled under it do not count
                del self.fleet.known[str(self._newest)]
            self._newest, self._refusal = previous, None
            self._look()
            raise PublishFailed(f"weights {path}: {refusal}")

    async def _update(self, server: Server) -> None:
        async with server.control:
            if self.base is not None:
                await self._add_adapter(server)
                return
            async with self._pause(server):
                name = str(self._newest)
                await self._load_folder(server, name, flush_cache=self.mode != "in_place")
                await self._check(server)

    @asynccontextmanager
    async def _pause(self, server: Server) -> AsyncIterator[None]:
        server.pause()
        try:
            await server.client.pause(self.mode)
            yield
        finally:
            try:
                async with asyncio.timeout(RESUME_SECONDS):
                    await server.client.resume()
            except TimeoutError as error:
                raise ServerUnreachable(f"{server.name} does not end its pause") from error
            finally:
                server.resume()

    async def _add_adapter(self, server: Server) -> None:
        name = str(self._newest)
        await adapters.add(server, name, self._newest_folder)
        await self._check(server)
        if self.mode == "abort":
            async with self._pause(server):
                pass  # requests in flight end and go on with the new adapter
        await adapters.unload_idle(server)

    async def _start_over(self, server: Server) -> None:
        async with server.control:
            await server.client.abort_all()
            load = partial(self._load_folder, server, flush_cache=True)
            if await memory.resume(server.client, load):
                await server.client.name_weights(str(self._newest))
            else:
                await server.client.resume()
                await self._end_update(server)
                if self.base is None:
                    await load(str(self._newest))
                else:
                    await adapters.start_over(
                        server, str(self._newest), base=self.base, folder=self._newest_folder
                    )
            await self._check(server)
            await server.client.resume()

    async def _end_update(self, server: Server) -> None:
        """Ends what a publish over a group left open, in this life of the engine or an earlier
        one."""
        with suppress(ServerRefused):  # no update is open
            await server.client.end_update()
        if server in self._left:
            with suppress(ServerRefused):
                await server.client.leave_group(self._left[server])
            del self._left[server]

    @property
    def _newest_folder(self) -> Path:
        if self._newest is None:
            raise ServerUnreachable("no version was ever published")
        return self._folders[self._newest]

    async def _load_folder(self, server: Server, name: str, *, flush_cache: bool) -> None:
        """Loads the newest version's folder, under a name."""
        path = str(self._newest_folder)
        await server.client.update_from_disk(path, name, flush_cache=flush_cache)

    async def _check(self, server: Server) -> None:
        """Records that the server has the newest version. Raises ServerRefused if it has not."""
        version = self._newest
        found = await server.client.weight_version()
        if found != str(version):
            raise ServerRefused(f"{server.name} serves {found!r} after an update to {version}")
        server.version = version
        if self.base is not None:
            server.adapter = found if found in server.adapters else ""
        self._had.add(server)


async def change_each(
    servers: Sequence[Server], change: Callable[[Server], Awaitable[None]]
) -> dict[Server, Exception]:
    """Changes all servers at once. Returns the error of each server that failed. Gives up
    stragglers."""

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
