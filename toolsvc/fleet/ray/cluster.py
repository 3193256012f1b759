"""Hosts as actors on a cluster, in the words of the fleet."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

from toolsvc.errors import StartError
from toolsvc.fleet.hosts import HostGone, HostSilent, Ready, Wanted
from toolsvc.fleet.ray.actor import ActorAssignment, Failed, HostActor
from toolsvc.fleet.ray.nodes import check_room
from toolsvc.fleet.resources import Resources
from toolwright.cluster import actors
from toolwright.cluster.actors import ActorGone, ActorSilent, ClusterError, RayActor


@contextlib.contextmanager
def connected(address: str) -> Iterator[None]:
    """As `actors.connected`. Raises StartError if the cluster cannot be used."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(actors.connected(address))
        except ClusterError as error:
            raise StartError(str(error)) from error
        yield


def nodes() -> list[Resources]:
    """Total resources of each living node, in use or free. Raises StartError if Ray does not
    answer."""
    try:
        found = actors.living_nodes()
    except ClusterError as error:
        raise StartError(str(error)) from error
    return [
        Resources(
            cpus=node.get("CPU", 0.0),
            gpus=node.get("GPU", 0.0),
            memory_bytes=int(node.get("memory", 0)),
        )
        for node in found.values()
    ]


class Actor:
    """A `HostProcess`: a `HostActor` on a node with room; nodes with fewer actors come first."""

    def __init__(self, wanted: Wanted, assignment: ActorAssignment) -> None:
        """The actor exists once a node has room; until then `start` waits."""
        self._wanted = wanted
        self._assignment = assignment
        needs = wanted.needs
        self._actor = RayActor(
            HostActor, cpus=needs.cpus, gpus=needs.gpus, memory_bytes=needs.memory_bytes
        )

    async def start(self) -> Ready:
        if self._wanted.slot is not None:
            # In a thread, because Ray's call blocks on the network.
            check_room(1, self._wanted.needs, await asyncio.to_thread(nodes))
        try:
            answer: Ready | Failed = await self._ask("start", self._assignment)
        except (HostGone, HostSilent) as error:
            raise StartError(f"a host died at its start: {error}") from error
        if isinstance(answer, Failed):
            raise StartError(answer.sentence)
        return answer

    async def beat(self) -> frozenset[str]:
        held: frozenset[str] = await self._ask("beat")
        return held

    async def page(self) -> str:
        page: str = await self._ask("page")
        return page

    async def end(self) -> None:
        await self._ask("end")

    async def kill(self) -> None:
        await self._actor.kill()

    async def _ask(self, method: str, *arguments: Any) -> Any:
        try:
            return await self._actor.ask(method, *arguments)
        except ActorSilent as error:
            raise HostSilent(str(error)) from error
        except ActorGone as error:
            raise HostGone(str(error)) from error
