"""The parts of Ray that are used: connecting to a cluster, its nodes' resources, and actors.

No exception of Ray leaves this module.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Iterator
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, RayError

from toolsvc.errors import StartError, first_line
from toolsvc.fleet.hosts import HostGone, HostSilent, Ready, Wanted
from toolsvc.fleet.ray.actor import ActorAssignment, Failed, HostActor
from toolsvc.fleet.ray.nodes import check_room
from toolsvc.fleet.resources import Resources

OBJECT_STORE_BYTES = 100 << 20
"""Object store of an own cluster, in bytes: about Ray's minimum, because nothing large is kept."""
_CONNECT_SECONDS = 5.0


@contextlib.contextmanager
def connected(address: str) -> Iterator[None]:
    """Connects to the cluster whose head is at `address`, host:port. "" = starts a cluster on this
    machine alone, which ends with the block (see `own_cluster`). Raises StartError if that
    fails."""
    own: dict[str, Any] = {}
    if address:
        _check_reachable(address)
    else:
        own = {
            "object_store_memory": OBJECT_STORE_BYTES,
            "include_dashboard": False,
        }
    try:
        ray.init(
            address=address or "local",
            log_to_driver=False,  # Ray's own logs have the output of hosts and plugins.
            logging_level=logging.WARNING,
            **own,
        )
    except (ConnectionError, RuntimeError, ValueError, RayError) as error:
        if not address:
            raise StartError(f"Ray does not start on this machine: {first_line(error)}") from error
        raise StartError(
            f"cannot use the Ray cluster at {address}: {first_line(error)}; this process has to "
            "run on one of its nodes, with the same versions of Python and Ray"
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


def _check_reachable(address: str) -> None:
    """Raises StartError if nothing listens there; Ray itself would wait for minutes."""
    host, colon, port = address.rpartition(":")
    fix = "start one with `ray start --head`, or leave --ray-address out for one on this machine"
    if not (colon and host and port.isdigit()):
        raise StartError(f"--ray-address {address}: write it as host:port")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise StartError(f"no Ray cluster answers at {address} ({error}): {fix}") from error


def nodes() -> list[Resources]:
    """Total resources of each living node, in use or free. Raises StartError if Ray does not
    answer."""
    try:
        told = ray.nodes()  # type: ignore[no-untyped-call]
    except (ConnectionError, RuntimeError, RayError) as error:
        raise StartError(
            f"Ray does not say which nodes it has: {first_line(error)}; see `ray status`"
        ) from error
    return [
        Resources(
            cpus=node["Resources"].get("CPU", 0.0),
            gpus=node["Resources"].get("GPU", 0.0),
            memory_bytes=int(node["Resources"].get("memory", 0)),
        )
        for node in told
        if node["Alive"]
    ]


class Actor:
    """A `HostProcess`: a `HostActor` on a node with room; nodes with fewer actors come first."""

    def __init__(self, wanted: Wanted, assignment: ActorAssignment) -> None:
        """The actor exists once a node has room; until then `start` waits."""
        self._wanted = wanted
        self._assignment = assignment
        needs = wanted.needs
        memory = {"memory": needs.memory_bytes} if needs.memory_bytes else {}
        self._handle: Any = (
            ray.remote(HostActor)
            .options(
                num_cpus=needs.cpus,
                num_gpus=needs.gpus,
                max_restarts=0,  # A restarted actor would have no sessions: it is a new host.
                scheduling_strategy="SPREAD",
                **memory,
            )
            .remote()
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
        with contextlib.suppress(RayError, ValueError):
            ray.kill(self._handle)

    async def _ask(self, method: str, *arguments: Any) -> Any:
        try:
            return await getattr(self._handle, method).remote(*arguments)
        except ActorUnavailableError as error:
            raise HostSilent(first_line(error)) from error
        except RayError as error:
            raise HostGone(first_line(error)) from error
