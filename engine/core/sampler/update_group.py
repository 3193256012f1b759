"""New weights over a distributed group. Servers join, receive and go on, or are set aside.

An outside process (rank 0) broadcasts, and the ranks of each server receive. SGLang runs one
control call at a time and samples nothing meanwhile. A server that waits for other members stands
still until they come or until their side of the connection closes. It answers no other control call
either, so nothing can interrupt it. It is set aside, and brought up once it answers.

Invariants
- However a publish ends, no server that answers stays paused. No server is up with a part of the
  new weights. From its first to its last tensor, a server has a version name that the engine does
  not know. So no token under these weights is accepted.
- A server that restarted during the publish does not count as one that received.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import structlog

from engine.core.sampler.control import RESUME_SECONDS, PublishResult, WeightControl, change_each
from engine.core.sampler.server import Server
from engine.core.sampler.wire.client import ServerRefused, ServerUnreachable
from engine.core.sampler.wire.events import WireError
from engine.errors import PublishFailed
from toolwright.types import WeightVersion

log = structlog.get_logger("weights")

REACH_SECONDS = 1.0
"""Time in which all servers find the store. A learner closes the store if one server does not join.
A later server would search for it for half an hour."""

_FAILURES = (ServerUnreachable, ServerRefused, WireError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendezvous:
    """Address at which a group meets: rank 0's store."""

    address: str
    port: int
    backend: str
    """Torch's name of the backend, gloo or nccl."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """One tensor of a broadcast."""

    name: str
    """Name in the policy's folder."""
    dtype: str
    """Torch's name of the type."""
    shape: tuple[int, ...]


class UpdateGroup:
    """The servers that were up when a publish began, as members of its group."""

    def __init__(
        self, control: WeightControl, *, name: str, version: WeightVersion, meeting: Rendezvous
    ) -> None:
        """Raises PublishFailed if no server is up, or one cannot be in a group."""
        self._control = control
        self._fleet = control.fleet
        self._name = name
        self._version = version
        self._meeting = meeting
        self._ranks: dict[Server, int] = {}
        """First rank of each server."""
        self.world_size = 1
        for server in map(self._fleet.named, self._fleet.names_up):
            ranks = server.info.ranks if server.info is not None else None
            if ranks is None:
                raise PublishFailed(
                    f"sampler {server.name} has replicas or pipeline stages (dp_size, pp_size), "
                    "which SGLang cannot update over a group: publish by a folder"
                )
            self._ranks[server] = self.world_size
            self.world_size += ranks
        if not self._ranks:
            raise PublishFailed("no sampler is up: publish a folder, which waits for one")
        self._in_part = f"{name}, in part"
        self._handed = False
        self._paused_since: float | None = None
        self._stopped: set[Server] = set()
        """Servers that were paused and have not gone on."""
        self._errors: dict[Server, str] = {}
        self._over: set[Server] = set()
        """Servers that are finished: they serve the version, or are set aside."""

    async def join(self) -> None:
        """Returns when the group stands. PublishFailed at the first server that does not join."""
        try:
            await self._together(self._join)
        except PublishFailed:
            await asyncio.sleep(REACH_SECONDS)
            raise

    async def receive(self, tensors: Sequence[TensorSpec]) -> None:
        """Returns when every server has the tensors that rank 0 broadcasts meanwhile.

        The first call pauses the servers. Raises PublishFailed at the first server that fails.
        """
        if self._paused_since is None:
            self._paused_since = time.monotonic()
            await self._together(self._begin)
        self._handed = True
        listed = [(tensor.name, tensor.dtype, tensor.shape) for tensor in tensors]

        async def receive(server: Server) -> None:
            await server.client.receive(
                listed,
                group=self._name,
                version=self._in_part,
                flush_cache=self._control.mode != "in_place",
            )

        await self._together(receive)

    async def finish(self) -> PublishResult:
        """Lets the servers go on with the version, each by itself. A server that fails is set
        aside.

        Raises PublishFailed if all fail.
        """
        began = self._paused_since or time.monotonic()
        self._fleet.known[str(self._version)] = self._version
        await self._fleet.announced()
        errors = await change_each(list(self._ranks), self._finish)
        for server, error in errors.items():
            self._errors[server] = str(error)
        if len(errors) == len(self._ranks):
            del self._fleet.known[str(self._version)]  # tokens sampled under it do not count
            raise PublishFailed("; ".join(self._errors.values()))
        paused = time.monotonic() - began
        for server in self._ranks.keys() - errors.keys():
            self._over.add(server)
            if not server.up.is_set():  # a stream that broke in the pause
                self._fleet.mark_up(server)
        self._control.record_served(self._version, self._over)
        return PublishResult(samplers=len(self._over), paused_s=paused)

    async def end(self) -> None:
        """Sets aside servers that failed or have a part of the weights. The others go on as before.

        Returns within seconds: a server that does not answer is brought up later.
        """
        for server in self._ranks.keys() - self._over:
            why = self._errors.get(server)
            if why is None and self._handed:
                why = f"it has a part of {self._version}, whose publish was ended"
            if why is not None:
                self._set_aside(server, why)
        await asyncio.gather(*(self._release(server) for server in self._ranks))

    async def _together(self, change: Callable[[Server], Awaitable[None]]) -> None:
        """Changes all servers at once; the first failure, or cancellation, ends it."""
        tasks = {asyncio.ensure_future(change(server)): server for server in self._ranks}
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in done:
            if isinstance(error := task.exception(), _FAILURES):
                self._errors[tasks[task]] = str(error)
            elif error is not None:
                raise error
        if self._errors:
            raise PublishFailed("; ".join(self._errors.values()))

    async def _join(self, server: Server) -> None:
        await server.client.join_group(
            self._name,
            address=self._meeting.address,
            port=self._meeting.port,
            backend=self._meeting.backend,
            rank=self._ranks[server],
            world_size=self.world_size,
        )

    async def _begin(self, server: Server) -> None:
        self._stopped.add(server)
        server.pause()
        await server.client.pause(self._control.mode)
        await server.client.begin_update()

    async def _finish(self, server: Server) -> None:
        found = await server.client.weight_version()
        if found != self._in_part:
            raise ServerRefused(
                f"{server.name} serves {found!r} during a publish: it was restarted"
            )
        await server.client.end_update()
        await server.client.name_weights(str(self._version))
        found = await server.client.weight_version()
        if found != str(self._version):
            raise ServerRefused(
                f"{server.name} serves {found!r} after an update to {self._version}"
            )
        await self._continue(server)

    async def _continue(self, server: Server) -> None:
        await server.client.resume()
        self._stopped.discard(server)
        server.resume()

    def _set_aside(self, server: Server, why: str) -> None:
        """Sends its requests elsewhere: their tokens would be sampled under no version."""
        self._over.add(server)
        self._fleet.mark_down(server, why)
        for flight in list(server.flights):
            flight.leave()

    async def _release(self, server: Server) -> None:
        """Takes a server out of the group, the update and the pause."""
        try:
            async with asyncio.timeout(RESUME_SECONDS):
                await self._leave(server)
        except (*_FAILURES, TimeoutError) as error:
            log.info("group_not_left", server=server.name, error=str(error) or "no answer in time")
            self._control.still_in_group(server, self._name)
            if server not in self._over:
                self._set_aside(server, f"it does not leave the group of a publish: {error}")
        finally:
            if server in self._stopped:
                server.resume()

    async def _leave(self, server: Server) -> None:
        amid = server in self._stopped
        if amid and self._handed:
            # Its requests have no reader any more. A server that hangs in a broadcast still takes
            # the end of its pause, for the time when it hangs no longer.
            await server.client.abort_all()
            await self._continue(server)
        with suppress(ServerRefused):  # it did not join
            await server.client.leave_group(self._name)
        if amid:
            with suppress(ServerRefused):  # it did not begin, or has ended
                await server.client.end_update()
            if not self._handed:
                await self._continue(server)


@asynccontextmanager
async def update_group(
    control: WeightControl, *, name: str, version: WeightVersion, meeting: Rendezvous
) -> AsyncIterator[UpdateGroup]:
    """A group of all servers that are up. It is cleaned up however the body ends.

    Waits for the first server if none is up. Raises PublishFailed if no group is possible.
    """
    if control.has_folder:
        await control.fleet.wait_for_one()
    async with control.exclusive():
        group = UpdateGroup(control, name=name, version=version, meeting=meeting)
        try:
            yield group
        finally:
            await group.end()
