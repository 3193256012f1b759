"""The process group of a broadcast: the learner's first rank is rank 0, the samplers' workers
follow.

SGLang's servers join a group beside their own by an address, a port and the group's name (its
`init_custom_process_group`). This is the same group on rank 0. It is separate from torch's default
group, and lives as long as one publish.

Invariants
- The address is bound before it is published.
- A wait for a worker happens in the group's own thread, no longer than `timeout`.
- `close` ends the connections: a worker that waits to join or for a tensor gets an error. A worker
  that has not found the address yet would search for torch's half hour. So a group that never
  formed is closed `LINGER_S` later, unless the port is fixed and the next group needs it.

Does not know what the tensors mean, nor how the samplers learn the address.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]
from torch.distributed.distributed_c10d import _new_process_group_helper, _world

from learner.errors import GroupError
from learner.ranks import device

BACKLOG = 1024
CLOSE_S = 1.0
LINGER_S = 2.0
"""Shorter than the engine's wait for servers to leave the group: the close frees them too."""
WATCHDOG = timedelta(minutes=10)
"""Added to the timeout: NCCL's watchdog ends the process, so `close` must come first."""


def prepare() -> None:
    """Call it before this process's first NCCL group.

    SGLang's workers switch NCCL's cuMem allocator off, and a group whose ranks differ in that
    hangs.
    """
    os.environ.setdefault("NCCL_CUMEM_ENABLE", "0")


def backend() -> str:
    """Name of the backend on both sides: NCCL if the learner has GPUs."""
    return "nccl" if device.has_cuda() else "gloo"


def same_nccl() -> str:
    """End of an error's sentence, with this side's version of NCCL; "" without NCCL.

    Ranks with two versions fail or hang. SGLang does not report its version, so no handshake can
    compare them.
    """
    if backend() != "nccl":
        return ""
    version = ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]
    return f"; the learner has NCCL {version}, and the samplers need the same version"


class WeightGroup:
    """Rank 0's side of one group. Always `close` it.

    timeout: longest time to join, and for each tensor, in seconds. Raises GroupError if the address
    cannot be bound.
    """

    def __init__(self, address: str, port: int, *, timeout: float) -> None:
        self._timeout = timedelta(seconds=timeout)
        self._watchdog_timeout = self._timeout + (WATCHDOG if device.has_cuda() else timedelta())
        self._group: Any = None
        self._port_is_fixed = port != 0
        try:
            addresses = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)
            family, kind, _, _, bound = addresses[0]
            with socket.socket(family, kind) as listener:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind(bound)
                listener.listen(BACKLOG)
                self.port = int(listener.getsockname()[1])
                # Without this listener a store listens at every address of the machine.
                self._store: Any = TCPStore(
                    address,
                    self.port,
                    is_master=True,
                    timeout=self._timeout,
                    wait_for_workers=False,
                    master_listen_fd=listener.detach(),
                )
            # A connection of its own, so that dropping the store ends waits on the connection.
            self._connection: Any = TCPStore(
                address, self.port, is_master=False, timeout=self._timeout, wait_for_workers=False
            )
        except (OSError, RuntimeError) as error:
            raise GroupError(
                f"cannot listen at learner.publish.address = {address}, port {port} "
                f"({_first_line(error)}): set an address of this machine and a free port"
            ) from error
        self._thread = ThreadPoolExecutor(1, "weight-group", _same_device, (_device(),))

    def join(self, name: str, world_size: int) -> Future[None]:
        """Begins to wait for the other ranks. Tensors are sent afterwards."""
        return self._thread.submit(self._join, name, world_size)

    def send(self, tensors: Sequence[torch.Tensor]) -> Future[None]:
        """Begins to broadcast the tensors in their order. They must not change until it is done.

        The future raises GroupError if a rank did not take them, or did not join.
        """
        return self._thread.submit(self._send, tensors)

    def close(self) -> None:
        """Ends the group; it cannot be used again.

        gloo cannot cancel a send to a live worker that does not receive: its connection closes at
        its timeout, after this call. A group that never formed closes after `LINGER_S`.
        """
        held, self._store = [self._store], None
        group = self._group
        if group is not None:
            group.abort()
        if group is not None or self._port_is_fixed:
            held.clear()
        else:
            later = threading.Timer(LINGER_S, held.clear)
            later.daemon = True
            later.start()
        ended = self._thread.submit(self._end)
        self._thread.shutdown(wait=False)
        wait([ended], CLOSE_S)

    def _end(self) -> None:
        if self._group in _world.pg_map:
            dist.destroy_process_group(self._group)
        self._group = self._connection = None

    def _join(self, name: str, world_size: int) -> None:
        try:
            group, _ = _new_process_group_helper(
                world_size,
                0,
                [],
                dist.Backend(backend()),
                PrefixStore(name, self._connection),
                group_name=name,  # type: ignore[arg-type]
                timeout=self._watchdog_timeout,
            )
        except RuntimeError as error:
            raise GroupError(
                f"not all of the samplers' {world_size - 1} workers joined ({_first_line(error)})"
                f"{same_nccl()}"
            ) from error
        _world.pg_group_ranks[group] = {rank: rank for rank in range(world_size)}
        self._group = group

    def _send(self, tensors: Sequence[torch.Tensor]) -> None:
        if self._store is None or self._group is None:
            raise GroupError("the samplers' workers did not join")
        try:
            works = [
                dist.broadcast(each, src=0, group=self._group, async_op=True) for each in tensors
            ]
            for work in works:
                work.wait()
            if device.has_cuda():  # NCCL's wait blocks the stream, not this thread
                torch.cuda.current_stream().synchronize()
        except RuntimeError as error:
            raise GroupError(f"the broadcast failed ({_first_line(error)}){same_nccl()}") from error


def _device() -> int | None:
    return torch.cuda.current_device() if device.has_cuda() else None


def _same_device(index: int | None) -> None:
    """Sets the starter's device: a new thread begins with the first device."""
    if index is not None:
        torch.cuda.set_device(index)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
