"""The parts of Ray that are used: connecting to a cluster, its nodes, and the life of an actor.

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

from toolwright.rpc.errors import first_line

OBJECT_STORE_BYTES = 100 << 20
"""Object store of an own cluster, in bytes: about Ray's minimum, because nothing large is kept."""
_CONNECT_SECONDS = 5.0


class ClusterError(Exception):
    """The cluster cannot be used. The message names the fix."""


class ActorGone(Exception):
    """The actor has died for good. The message says what died."""


class ActorSilent(Exception):
    """The actor does not answer; it may live."""


@contextlib.contextmanager
def connected(address: str) -> Iterator[None]:
    """Connects to the cluster whose head is at `address`, host:port. "" = starts a cluster on this
    machine alone, which ends with the block. Raises ClusterError if that fails."""
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
            log_to_driver=False,  # Ray's own logs have the output of actors and plugins.
            logging_level=logging.WARNING,
            **own,
        )
    except (ConnectionError, RuntimeError, ValueError, RayError) as error:
        if not address:
            raise ClusterError(
                f"Ray does not start on this machine: {first_line(error)}"
            ) from error
        raise ClusterError(
            f"cannot use the Ray cluster at {address}: {first_line(error)}; this process has to "
            "run on one of its nodes, with the same versions of Python and Ray"
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


def _check_reachable(address: str) -> None:
    """Raises ClusterError if nothing listens there; Ray itself would wait for minutes."""
    host, colon, port = address.rpartition(":")
    fix = "start one with `ray start --head`, or leave --ray-address out for one on this machine"
    if not (colon and host and port.isdigit()):
        raise ClusterError(f"--ray-address {address}: write it as host:port")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise ClusterError(f"no Ray cluster answers at {address} ({error}): {fix}") from error


def living_nodes() -> dict[str, dict[str, float]]:
    """Total resources of each living node by its id, in use or free. It blocks on the network.
    Raises ClusterError if Ray does not answer."""
    try:
        found = ray.nodes()  # type: ignore[no-untyped-call]
    except (ConnectionError, RuntimeError, RayError) as error:
        raise ClusterError(
            f"Ray does not say which nodes it has: {first_line(error)}; see `ray status`"
        ) from error
    return {node["NodeID"]: node["Resources"] for node in found if node["Alive"]}


def node_address() -> str:
    """Host part of this node's address, as other nodes reach it. An IPv6 address has brackets."""
    address: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
    return f"[{address}]" if ":" in address else address


def node_here() -> str:
    """Id of the node that this process runs on."""
    return str(ray.get_runtime_context().get_node_id())


class RayActor:
    """An actor on a node with room; nodes with fewer actors come first. It is never restarted: a
    restarted actor would not have what the first one held. It ends with the process that made
    it."""

    def __init__(
        self, kind: type, *, cpus: float, gpus: float = 0.0, memory_bytes: int = 0
    ) -> None:
        """The actor exists once a node has room; until then the first request waits."""
        memory = {"memory": memory_bytes} if memory_bytes else {}
        self._handle: Any = (
            ray.remote(kind)
            .options(
                num_cpus=cpus,
                num_gpus=gpus,
                max_restarts=0,
                scheduling_strategy="SPREAD",
                **memory,
            )
            .remote()
        )

    async def ask(self, method: str, *arguments: Any) -> Any:
        """The answer of a method. Raises ActorGone or ActorSilent."""
        try:
            return await getattr(self._handle, method).remote(*arguments)
        except ActorUnavailableError as error:
            raise ActorSilent(first_line(error)) from error
        except RayError as error:
            raise ActorGone(first_line(error)) from error

    async def kill(self) -> None:
        """Ends the actor, also if it has not started yet. It may live a moment longer."""
        with contextlib.suppress(RayError, ValueError):
            ray.kill(self._handle)


async def lives(node: str) -> bool:
    """Whether Ray reports the node as alive; False if Ray does not answer."""
    try:
        return node in await asyncio.to_thread(living_nodes)
    except ClusterError:
        return False
