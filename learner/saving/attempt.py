"""One try to bring a version to the samplers by a process group.

Invariants
- A try that failed goes on taking buckets and does nothing with them: who exports weights need not
  stop amid a collective.
- While a bucket is under way its caller may work; it is over when every sampler has the bucket.
- At the end of the block nobody waits in the group any more, and unless the version was committed
  the engine was told that it will not be.

Rank 0 alone. Does not know where weights come from, nor what follows a failure.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from learner.config.weights import Publish
from learner.errors import GroupError
from learner.intake.client import EngineClient
from learner.intake.publishing import GroupPublish, Meeting, TensorName
from learner.ranks import device
from learner.saving.buckets import Named
from learner.saving.group import WeightGroup, backend
from toolwright.types import WeightVersion


@dataclass(slots=True, kw_only=True)
class Spent:
    """Of all tries of a publish. Seconds: of the engine's calls, of the buckets among them, of the
    samplers' pause; bytes: of the buckets that arrived."""

    tries: int = 0
    publish_s: float = 0.0
    broadcast_s: float = 0.0
    paused_s: float = 0.0
    bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Open:
    """joined: ends when all ranks of the group are there."""

    group: WeightGroup
    publish: GroupPublish
    joined: Future[None]


class Attempt:
    """A context manager; begins with its first bucket. `failed`: why it came to nothing.

    Raises what no other try would mend: TakenError, EngineError.
    """

    def __init__(
        self, client: EngineClient, version: WeightVersion, settings: Publish, spent: Spent
    ) -> None:
        self.failed: GroupError | None = None
        self._client = client
        self._version = version
        self._settings = settings
        self._spent = spent
        self._open: _Open | None = None
        self._committed = False
        self._sent = 0
        spent.tries += 1

    def __enter__(self) -> Attempt:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    def send(self, bucket: Sequence[Named], meanwhile: Callable[[], None]) -> None:
        """Returns when every sampler has the bucket, or the try has failed. `meanwhile` is called
        once, while the bucket is under way."""
        began = time.monotonic()
        under_way = self._unless_failed(lambda: self._start(bucket))
        started = time.monotonic()
        meanwhile()
        if under_way is None:
            self._spent.publish_s += started - began
            return
        self._unless_failed(lambda: self._finish(under_way))
        seconds = time.monotonic() - began
        self._spent.publish_s += seconds
        self._spent.broadcast_s += seconds
        if self.failed is None:
            self._spent.bytes += sum(tensor.nbytes for _, tensor in bucket)

    def commit(self) -> None:
        """The samplers go on as the version, unless the try has failed."""
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
            TensorName(
                name=name,
                dtype=str(tensor.dtype).removeprefix("torch."),
                shape=tuple(tensor.shape),
            )
            for name, tensor in bucket
        ]
        there = [tensor.detach().to(device.device()).contiguous() for _, tensor in bucket]
        # The engine is asked before all have joined: it answers at once where a server does not.
        answer = opened.publish.bucket(self._sent, names, timeout=self._settings.timeout_s)
        return [answer, opened.joined, opened.group.send(there)]

    def _finish(self, under_way: list[Future[Any]]) -> None:
        done, left = wait(under_way, self._settings.timeout_s, return_when=FIRST_EXCEPTION)
        for each in left:
            each.cancel()
        for each in under_way:  # what the engine says first
            if each in done:
                each.result()
        if left:
            raise GroupError(
                f"bucket {self._sent} did not reach every sampler within "
                f"learner.publish.timeout_s = {self._settings.timeout_s:g}"
            )
        self._sent += 1

    def _begin(self) -> _Open:
        settings = self._settings
        group = WeightGroup(settings.address, settings.port, timeout=settings.timeout_s)
        try:
            meeting = Meeting(address=settings.address, port=group.port, backend=backend())
            publish = GroupPublish.begin(
                self._client, self._version, meeting, lease=settings.timeout_s
            )
        except BaseException:
            group.close()
            raise
        joined = group.join(publish.name, publish.world_size)
        return _Open(group=group, publish=publish, joined=joined)

    def _commit(self) -> None:
        if self._open is None:
            raise GroupError("there are no weights")
        self._spent.paused_s = self._open.publish.commit(timeout=self._settings.timeout_s)
        self._committed = True

    def _close(self) -> None:
        opened, self._open = self._open, None
        if opened is not None:
            opened.group.close()
            if not self._committed:
                opened.publish.abort()
