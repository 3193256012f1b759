"""One attempt to bring a version to the samplers by a process group.

Invariants
- A failed attempt still takes buckets and ignores them. So the export of weights need not stop
  inside of a collective.
- While a bucket is in flight the caller may work. A bucket is done when every sampler has it.
- At the end of the block no process waits in the group. Without a commit the publish was aborted at
  the engine.

Rank 0 alone. Does not know where weights come from, nor what follows a failure.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from dataclasses import dataclass
from typing import Any

from learner.config.weights import Publish
from learner.errors import GroupError
from learner.intake.client import EngineClient
from learner.intake.publishing import GroupPublish
from learner.ranks import device
from learner.saving.buckets import Named
from learner.saving.group import WeightGroup, backend, same_nccl
from toolwright.policy.v1.policy_pb2 import TensorMeta
from toolwright.types import WeightVersion


@dataclass(slots=True, kw_only=True)
class PublishTotals:
    """Totals over all attempts of a publish."""

    tries: int = 0
    publish_s: float = 0.0
    """Time of the engine's calls, in seconds."""
    broadcast_s: float = 0.0
    """Time of the buckets among them, in seconds."""
    paused_s: float = 0.0
    """Length of the samplers' pause, in seconds."""
    bytes: int = 0
    """Size of the buckets that arrived."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Session:
    group: WeightGroup
    publish: GroupPublish
    joined: Future[None]
    """Ends when all ranks of the group have joined."""


class Attempt:
    """A context manager; begins with its first bucket. `failed` is the error of a failed attempt.

    Raises errors that another attempt would not fix: TakenError, EngineError.
    """

    def __init__(
        self, client: EngineClient, version: WeightVersion, settings: Publish, spent: PublishTotals
    ) -> None:
        self.failed: GroupError | None = None
        self._client = client
        self._version = version
        self._settings = settings
        self._spent = spent
        self._open: _Session | None = None
        self._committed = False
        self._sent = 0
        spent.tries += 1

    def __enter__(self) -> Attempt:
        return self

    def __exit__(self, *_error: object) -> None:
        self._close()

    def send(self, bucket: Sequence[Named], meanwhile: Callable[[], None]) -> None:
        """Returns when every sampler has the bucket, or the attempt has failed.

        meanwhile: called once, while the bucket is in flight.
        """
        began = time.monotonic()
        in_flight = self._unless_failed(lambda: self._start(bucket))
        started = time.monotonic()
        meanwhile()
        if in_flight is None:
            self._spent.publish_s += started - began
            return
        self._unless_failed(lambda: self._finish(in_flight))
        seconds = time.monotonic() - began
        self._spent.publish_s += seconds
        self._spent.broadcast_s += seconds
        if self.failed is None:
            self._spent.bytes += sum(tensor.nbytes for _, tensor in bucket)

    def commit(self) -> None:
        """Has the samplers serve the version, unless the attempt has failed."""
        began = time.monotonic()
        self._unless_failed(self._commit)
        self._spent.publish_s += time.monotonic() - began

    def _unless_failed(self, work: Callable[[], Any]) -> Any:
        if self.failed is not None:
            return None
        try:
            return work()
        except GroupError as error:
            self.failed = error
            self._close()
            return None

    def _start(self, bucket: Sequence[Named]) -> list[Future[Any]]:
        if self._open is None:
            self._open = self._begin()
        opened = self._open
        names = [
            TensorMeta(
                name=name, dtype=str(tensor.dtype).removeprefix("torch."), shape=tensor.shape
            )
            for name, tensor in bucket
        ]
        on_device = [tensor.detach().to(device.device()).contiguous() for _, tensor in bucket]
        # Called before all have joined: the engine answers at once if a server does not join.
        answer = opened.publish.bucket(self._sent, names, timeout=self._settings.timeout_s)
        return [answer, opened.joined, opened.group.send(on_device)]

    def _finish(self, in_flight: list[Future[Any]]) -> None:
        done, left = wait(in_flight, self._settings.timeout_s, return_when=FIRST_EXCEPTION)
        for each in left:
            each.cancel()
        for each in in_flight:  # the engine's error first
            if each in done:
                each.result()
        if left:
            raise GroupError(
                f"bucket {self._sent} did not reach every sampler within "
                f"learner.publish.timeout_s = {self._settings.timeout_s:g}{same_nccl()}"
            )
        self._sent += 1

    def _begin(self) -> _Session:
        settings = self._settings
        group = WeightGroup(settings.address, settings.port, timeout=settings.timeout_s)
        try:
            publish = GroupPublish.begin(
                self._client,
                self._version,
                address=settings.address,
                port=group.port,
                backend=backend(),
                lease=settings.timeout_s,
            )
        except BaseException:
            group.close()
            raise
        joined = group.join(publish.name, publish.world_size)
        return _Session(group=group, publish=publish, joined=joined)

    def _commit(self) -> None:
        if self._open is None:
            raise GroupError("the policy exported no weights")
        self._spent.paused_s = self._open.publish.commit(timeout=self._settings.timeout_s)
        self._committed = True

    def _close(self) -> None:
        opened, self._open = self._open, None
        if opened is not None:
            opened.group.close()
            if not self._committed:
                opened.publish.abort()
