"""The state of the samplers, from the coordinator's fleet to the workers.

The coordinator alone decides which server is up and which weights it has. A worker reports a server
that broke off, and the coordinator looks.

Invariants
- Every worker knows a weight version before a sampler has it. A worker that does not confirm in
  time is lost.
- A new stream begins with the present state, under the number of the last one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec

from engine.core.sampler.fleet import Fleet
from engine.core.sampler.server import Server
from engine.core.sampler.wire.client import ServerInfo
from engine.serving.crew.worker_link import WorkerLink
from toolwright.crew.v1 import crew_pb2 as pb

STALL_S = 0.1
"""Time to read confirmations that arrived while the event loop stalled."""


class SamplerAnnouncements:
    """Sends the state of a fleet to all workers after each change."""

    def __init__(self, fleet: Fleet, links: Mapping[str, WorkerLink], *, within: float) -> None:
        """links: the present workers, by name. within: longest wait for a confirmation, in
        seconds."""
        self._fleet = fleet
        self._links = links
        self._within = within
        self._number = 0
        """Number of the last state."""
        self._due = False
        self._faults: set[asyncio.Task[None]] = set()
        fleet.changed = self._changed
        fleet.announce = self.announce

    @property
    def last(self) -> pb.Samplers:
        """The present state, under the number of the last one that was sent."""
        return state_of(self._fleet, self._number)

    async def announce(self) -> None:
        """Returns when every ready worker knows the samplers' state. A worker that does not confirm
        in time is lost."""
        number = self._send()
        ready = [link for link in self._links.values() if link.takes_work]
        waits = {asyncio.ensure_future(link.until_seen(number)): link for link in ready}
        if not waits:
            return
        _, late = await asyncio.wait(waits, timeout=self._within)
        if late:
            _, late = await asyncio.wait(late, timeout=STALL_S)
        for wait in late:
            wait.cancel()
            waits[wait].lose(f"it did not confirm new weights within {self._within:g} s")

    def take_fault(self, fault: pb.SamplerFault) -> None:
        """Checks in the background a server that broke off at a worker."""
        task = asyncio.get_running_loop().create_task(self._look_at(fault.sampler, fault.why))
        self._faults.add(task)
        task.add_done_callback(self._faults.discard)

    def _changed(self) -> None:
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._send)

    def _send(self) -> int:
        self._due = False
        self._number += 1
        state = self.last
        for link in self._links.values():
            link.send(pb.WorkResponse(samplers=state))
        return self._number

    async def _look_at(self, name: str, why: str) -> None:
        """Sets a server aside that does not answer with weights of this run."""
        server = self._fleet.named(name)
        if server.up.is_set() and not self._fleet.can_have(await server.weights(), server.version):
            self._fleet.mark_down(server, why)
        self._changed()  # a worker that set a living server aside takes it again


def state_of(fleet: Fleet, number: int) -> pb.Samplers:
    """The present state under a number."""
    return pb.Samplers(
        number=number,
        versions=list(fleet.known),
        samplers=[_server_state(server) for server in fleet.servers],
    )


def _server_state(server: Server) -> pb.Sampler:
    return pb.Sampler(
        name=server.name,
        up=server.up.is_set(),
        why=server.why,
        paused=server.paused,
        version="" if server.version is None else str(server.version),
        info=b"" if server.info is None else msgspec.json.encode(server.info),
    )


def info_of(state: pb.Sampler) -> ServerInfo | None:
    """The server's answer to /server_info; None if it never answered."""
    return msgspec.json.decode(state.info, type=ServerInfo) if state.info else None
