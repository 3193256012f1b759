"""Keeps confined sessions ready, so that no call waits for a fork.

Invariants
- At most `starting` sessions are being created at once; callers that wait are served in the order
  in which they came.
- A session that was taken is never given out again: it ends when its taker closes it.
- A shared jail that goes down, or that cannot make sessions, is replaced in the background, with
  growing pauses while that fails; until then the other jails serve. One that cannot make sessions
  ends when the last of those that it has is gone.

Reports its own fill by `statistics`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import structlog

from toolsvc.sandbox.errors import SandboxDown, SandboxError, SandboxUnavailable
from toolsvc.sandbox.session import SandboxSession
from toolsvc.sandbox.shard import Shard
from toolwright.process.backoff import Backoff

_RESTART = Backoff(0.1, 5.0, jitter=False)
_RETRY = Backoff(0.02, 1.28, jitter=False)
_GIVE_UP_AFTER = 3
"""Failed creations in a row after which waiting callers fail too, instead of waiting on."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStatistics:
    """How full the pool is."""

    ready: int
    creating: int
    waiting: int
    living: int
    shards: int
    replaced: int
    """Jails that were lost and started anew, so far."""


class SandboxPool:
    """Not thread-safe: all calls from one loop."""

    def __init__(
        self,
        start_shard: Callable[..., Awaitable[Shard]],
        *,
        shards: int,
        ready: int,
        starting: int,
        exclusive: bool,
    ) -> None:
        """`start_shard`: takes `on_ready`, `on_failed` and `on_down` as `Shard.start` does.
        `exclusive`: one jail a session, so `shards` does not matter."""
        self._start_shard = start_shard
        self._wanted_shards = 0 if exclusive else shards
        self._wanted_ready = ready
        self._starting = starting
        self._exclusive = exclusive
        self._shards: list[Shard] = []
        self._retired: list[Shard] = []
        self._ready: deque[SandboxSession] = deque()
        self._creating = 0
        self._waiting: deque[asyncio.Future[SandboxSession]] = deque()
        self._failures = 0
        self._replaced = 0
        self._replacing = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._burials: set[asyncio.Task[None]] = set()
        self._closing = False
        self.disk_bounded = False
        """Whether the kernel bounds the files of the newest jail, or only the watch in it."""

    async def start(self) -> None:
        """Starts the shared jails; SandboxDown if one does not come up."""
        shards = await asyncio.gather(
            *(self._new_shard() for _ in range(self._wanted_shards)), return_exceptions=True
        )
        self._shards += [shard for shard in shards if isinstance(shard, Shard)]
        for failure in shards:
            if isinstance(failure, BaseException):
                raise failure
        self._fill()

    @property
    def statistics(self) -> PoolStatistics:
        return PoolStatistics(
            ready=len(self._ready),
            creating=self._creating,
            waiting=len(self._waiting),
            living=sum(len(shard.sessions) for shard in (*self._shards, *self._retired)),
            shards=len(self._shards),
            replaced=self._replaced,
        )

    async def take(self) -> SandboxSession:
        """A fresh session, which the caller must close. Raises SandboxDown if none can be made.

        Cancelling the wait loses nothing: the session goes to the next waiting caller.
        """
        while self._ready and not self._closing:
            session = self._ready.popleft()
            if session.gone is None:
                self._fill()
                return session
            session.close()
        if self._closing:
            raise SandboxDown("the sandbox is shutting down")
        waiting: asyncio.Future[SandboxSession] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        self._fill()
        try:
            return await waiting
        except asyncio.CancelledError:
            if waiting.done() and not waiting.cancelled() and waiting.exception() is None:
                self._on_ready(waiting.result(), created=False)
            else:
                with contextlib.suppress(ValueError):
                    self._waiting.remove(waiting)
            raise

    async def close(self) -> None:
        """Ends every jail, and with them every session."""
        self._closing = True
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_exception(SandboxDown("the sandbox is shutting down"))
        self._waiting.clear()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for session in self._ready:
            session.close()
        self._ready.clear()
        shards = [*self._shards, *self._retired]
        self._shards, self._retired = [], []
        await asyncio.gather(*(shard.close() for shard in shards), *self._burials)

    def _fill(self) -> None:
        if self._closing:
            return
        missing = self._wanted_ready + len(self._waiting) - len(self._ready) - self._creating
        count = min(missing, self._starting - self._creating)
        if count <= 0:
            return
        if self._exclusive:
            self._creating += count
            for _ in range(count):
                _keep(self._tasks, self._new_exclusive())
            return
        living = [shard for shard in self._shards if not shard.down]
        if not living:
            return
        self._creating += count
        for shard, share in _level(living, count):
            if share:
                shard.request(share)

    def _on_ready(self, session: SandboxSession, *, created: bool = True) -> None:
        if created:
            self._creating -= 1
            self._failures = 0
        if self._closing:
            session.close()
            return
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(session)
                break
        else:
            self._ready.append(session)
        self._fill()

    def _on_failed(self, reason: str, *, for_good: bool = False) -> None:
        self._creating -= 1
        if self._closing:
            return
        self._failures += 1
        log.warning("session not created", reason=reason, in_a_row=self._failures)
        self._retire_barren()
        if for_good or self._failures >= _GIVE_UP_AFTER:
            error = SandboxDown(f"no session could be created: {reason}")
            while self._waiting:
                waiting = self._waiting.popleft()
                if not waiting.done():
                    waiting.set_exception(SandboxUnavailable(reason) if for_good else error)
        if self._wanted_ready or self._waiting:
            # Not at once: what made this one fail may last.
            asyncio.get_running_loop().call_later(_RETRY.pause(self._failures), self._fill)

    def _retire_barren(self) -> None:
        """Replaces barren jails. Otherwise the pool would choose them again, because they have the
        fewest sessions."""
        if self._exclusive:
            return
        for shard in [one for one in self._shards if one.barren and not one.down]:
            log.error("jail makes no sessions", pid=shard.jail_pid, sessions=len(shard.sessions))
            self._shards.remove(shard)
            self._retired.append(shard)
            shard.retire()
        self._replace_missing()

    def _on_down(self, shard: Shard) -> None:
        retired = shard in self._retired
        with contextlib.suppress(ValueError):
            (self._retired if retired else self._shards).remove(shard)
        _keep(self._burials, shard.close())
        if not retired and not self._exclusive and not self._closing:
            log.error("jail lost", pid=shard.jail_pid)
            self._replace_missing()

    def _replace_missing(self) -> None:
        if len(self._shards) < self._wanted_shards and not self._replacing:
            self._replacing = True
            _keep(self._tasks, self._replace())

    async def _replace(self) -> None:
        """All that are missing, one after the other, until none is."""
        attempt = 0
        while len(self._shards) < self._wanted_shards:
            await asyncio.sleep(_RESTART.pause(attempt))
            attempt += 1
            try:
                self._shards.append(await self._new_shard())
                self._replaced += 1
            except (SandboxError, OSError) as error:
                log.warning("jail not replaced", reason=str(error), attempt=attempt)
        self._replacing = False
        self._failures = 0
        self._fill()

    async def _new_exclusive(self) -> None:
        try:
            shard = await self._new_shard()
        except (SandboxError, OSError) as error:
            self._on_failed(str(error), for_good=isinstance(error, SandboxUnavailable))
            return
        self._shards.append(shard)
        shard.request()

    async def _new_shard(self) -> Shard:
        shard = await self._start_shard(
            on_ready=self._on_ready, on_failed=self._on_failed, on_down=self._on_down
        )
        if shard.down:  # it went down meanwhile, and is closed already
            raise SandboxDown("the jail ended as soon as it was ready")
        self.disk_bounded = shard.disk_bounded
        return shard


def _keep(tasks: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> None:
    task = asyncio.create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)


def _level(shards: list[Shard], count: int) -> list[tuple[Shard, int]]:
    """Spreads `count` new sessions so that loads even out."""
    loads = [shard.load for shard in shards]
    shares = [0] * len(shards)
    for _ in range(count):
        emptiest = min(range(len(shards)), key=lambda i: loads[i] + shares[i])
        shares[emptiest] += 1
    return list(zip(shards, shares, strict=True))
