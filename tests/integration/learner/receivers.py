"""What stands for the samplers' workers: ranks of a real gloo group, each a thread that receives.

They join as SGLang's workers do (its `init_custom_process_group`), by the store's address and the
group's name. They belong to no default group, so that any number of them fits into one process,
the learner's too.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta

import torch
import torch.distributed as dist

Meta = tuple[str, str, tuple[int, ...]]
"""Name, dtype in torch's word, shape."""

WAIT = timedelta(seconds=10)


class Receiver:
    """One rank. `joined` ends when all ranks of the group are there."""

    def __init__(self, address: str, port: int, name: str, rank: int, world_size: int) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._group: dist.ProcessGroupGloo | None = None
        self.joined = self._thread.submit(self._join, address, port, name, rank, world_size)

    def receive(self, tensors: list[Meta]) -> Future[dict[str, torch.Tensor]]:
        """The tensors of one bucket, in the order in which they are broadcast."""
        return self._thread.submit(self._receive, tensors)

    def close(self) -> None:
        """Also ends what it waits for."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        if self._group is not None:
            self._group.abort()

    def _join(self, address: str, port: int, name: str, rank: int, world_size: int) -> None:
        store = dist.TCPStore(address, port, world_size, False, timeout=WAIT)
        for prefix in (name, f"{name}/", "cpu/"):
            store = dist.PrefixStore(prefix, store)  # type: ignore[assignment]
        self._group = dist.ProcessGroupGloo(store, rank, world_size, WAIT)

    def _receive(self, tensors: list[Meta]) -> dict[str, torch.Tensor]:
        assert self._group is not None
        options = dist.BroadcastOptions()
        options.rootRank = 0
        found, works = {}, []
        for name, dtype, shape in tensors:
            found[name] = torch.empty(shape, dtype=getattr(torch, dtype))
            works.append(self._group.broadcast([found[name]], options))
        for work in works:
            work.wait()
        return found
