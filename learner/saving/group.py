"""The process group that weights travel in: the learner's first rank is rank 0, the others are the
samplers' workers.

SGLang's servers join a group beside their own by an address, a port and the group's name (its
`init_custom_process_group`); this is the same group seen from rank 0. It is no part of torch's
default group, and lives as long as one publish.

Invariants
- The address is bound before anybody can be told of it.
- Whatever waits for a worker waits in the group's own thread, no longer than `timeout`.
- `close` ends the connections: a worker that waits to join or for a tensor is free, with an error.
  One that has not found the address yet would look for it for torch's half hour, so a group that
  never stood is closed `LINGER_S` later, unless its port is wanted again.

Does not know what the tensors mean, nor who asked the samplers to join.
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
"""Less than an engine waits for servers that joined and are to leave again: this frees them too."""
WATCHDOG = timedelta(minutes=10)
"""Beyond the timeout: NCCL's watchdog ends the process, so `close` has to come first."""


def prepare() -> None:
    """Before this process's first NCCL group. SGLang's workers do without NCCL's cuMem allocator,
    and a group whose ranks differ in that hangs."""
    os.environ.setdefault("NCCL_CUMEM_ENABLE", "0")


def backend() -> str:
    """What both sides name: NCCL where the learner has GPUs."""
    return "nccl" if device.has_cuda() else "gloo"


class WeightGroup:
    """Rank 0's side of one group. `close` it whatever happens.

    timeout: seconds that joining may take, and each tensor. GroupError where the address cannot be
    bound.
    """

    def __init__(self, address: str, port: int, *, timeout: float) -> None:
        self._timeout = timedelta(seconds=timeout)
        self._patience = self._timeout + (WATCHDOG if device.has_cuda() else timedelta())
        self._group: Any = None
        self._port_is_fixed = port != 0
        try:
            places = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)
            family, kind, _, _, place = places[0]
            with socket.socket(family, kind) as listener:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind(place)
                listener.listen(BACKLOG)
                self.port = int(listener.getsockname()[1])
                # By itself a store listens at every address of the machine.
                self._store: Any = TCPStore(
                    address,
                    self.port,
                    is_master=True,
                    timeout=self._timeout,
                    wait_for_workers=False,
                    master_listen_fd=listener.detach(),
                )
            # Another line to it, so that dropping the store ends what waits at the line.
            self._line: Any = TCPStore(
                address, self.port, is_master=False, timeout=self._timeout, wait_for_workers=False
            )
        except (OSError, RuntimeError) as error:
            raise GroupError(
                f"nobody can listen at learner.publish.address = {address}, port {port} "
                f"({_first_line(error)}): name an address of this machine, and a port that is free"
            ) from error
        self._thread = ThreadPoolExecutor(1, "weight-group", _same_device, (_device(),))

    def join(self, name: str, world_size: int) -> Future[None]:
        """Begins to wait for the other ranks; what is sent is sent afterwards."""
        return self._thread.submit(self._join, name, world_size)

    def send(self, tensors: Sequence[torch.Tensor]) -> Future[None]:
        """Begins to broadcast the tensors in their order. They must stay as they are until it is
        done. The future raises GroupError where a rank did not take them, or did not join."""
        return self._thread.submit(self._send, tensors)

    def close(self) -> None:
        """Not to be used afterwards.

        A send to a worker that lives and takes nothing cannot be taken back under gloo: its
        connection is closed when its time is up, behind this call. So is a group that did not
        stand yet, after `LINGER_S`.
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
        self._group = self._line = None

    def _join(self, name: str, world_size: int) -> None:
        try:
            group, _ = _new_process_group_helper(
                world_size,
                0,
                [],
                dist.Backend(backend()),
                PrefixStore(name, self._line),
                group_name=name,  # type: ignore[arg-type]
                timeout=self._patience,
            )
        except RuntimeError as error:
            raise GroupError(
                f"not all of the samplers' {world_size - 1} workers joined ({_first_line(error)})"
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
            if device.has_cuda():  # NCCL's wait is the stream's, not this thread's
                torch.cuda.current_stream().synchronize()
        except RuntimeError as error:
            raise GroupError(f"the broadcast broke ({_first_line(error)})") from error


def _device() -> int | None:
    return torch.cuda.current_device() if device.has_cuda() else None


def _same_device(index: int | None) -> None:
    """A thread begins with the first device, whichever its starter has."""
    if index is not None:
        torch.cuda.set_device(index)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
