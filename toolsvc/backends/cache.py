"""Answers that were paid for once: a bounded store of bytes, in a folder or in Redis.

Invariants
- A cache that cannot be reached at the start is a StartError. One that fails later is a miss that
  is counted, never an error of a call; it is then left alone for a moment, so that a store which
  hangs costs a call now and then, and not every call. It costs a call `_ANSWER_SECONDS` at most,
  whatever it hangs in: a connection, an answer, a second try, a place in line.
- A folder holds at most `most_bytes`: what was stored first goes first. A Redis is bounded by its
  own `maxmemory`; one without is not used. Entries expire.
- Nothing is unpickled. An account that can write to the folder can forge answers, but runs nothing
here.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

import diskcache
import redis.asyncio as redis
import structlog
from pydantic import BaseModel, Field, field_validator
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from toolsvc.errors import StartError
from toolsvc.plugin.tool import STRICT

_SECONDS = 2.0
"""For the store to be reached at the start, and for the parts of an answer."""
_ANSWER_SECONDS = 1.0
"""For the store to answer a call: hundreds of times what it takes, and little beside what an answer
costs that is not there."""
_REST_SECONDS = 5.0
"""For which a store that failed is left alone."""
_REDIS = ("redis", "rediss", "unix")
_MIB = 1 << 20
_DAY = 86_400.0

Answer = TypeVar("Answer")

log = structlog.get_logger(__name__)


class CacheOptions(BaseModel):
    """What an operator may say about a cache: a fragment of a tool's options."""

    model_config = STRICT

    cache: str = Field(
        default="", description="keeps answers in this folder, or in a redis:// server"
    )
    cache_mib: int = Field(
        default=1024, ge=1, description="the most that a folder holds, and any one answer has, MiB"
    )
    cache_days: float | None = Field(
        default=30.0, gt=0, le=36_500, description="after which an answer is forgotten; none: never"
    )

    @field_validator("cache_days", mode="before")
    @classmethod
    def _none_is_a_word(cls, given: Any) -> Any:
        """Options are typed as words."""
        return None if given == "none" else given

    @asynccontextmanager
    async def opened_cache(self) -> AsyncIterator[Cache | None]:
        """None where no cache was asked for. Raises StartError if it cannot be reached."""
        if not self.cache:
            yield None
            return
        seconds = None if self.cache_days is None else self.cache_days * _DAY
        cache = await open_cache(self.cache, most_bytes=self.cache_mib * _MIB, seconds=seconds)
        try:
            yield cache
        finally:
            await cache.close()


class _Store(Protocol):
    """Where the entries are. Its methods raise one of `_FAILURES`."""

    async def get(self, key: str) -> bytes | None: ...

    async def put(self, key: str, value: bytes) -> None: ...

    async def close(self) -> None: ...


_FAILURES = (OSError, TimeoutError, sqlite3.Error, diskcache.Timeout, RedisError)


class Cache:
    """Made by `open_cache`; to be closed once."""

    def __init__(self, store: _Store, where: str, most_bytes: int) -> None:
        self._store = store
        self._where = where
        self._most_bytes = most_bytes
        self._rests_until = 0.0
        self._hits = 0
        self._misses = 0
        self._failures = 0
        self._late: set[asyncio.Task[Any]] = set()
        """Requests to the store, also those that no call waits for any more."""

    async def get(self, key: str) -> bytes | None:
        """What was stored under `key`, or None: never stored, gone, or out of reach."""
        value = None
        if not self._resting():
            try:
                value = await self._in_time(self._store.get(key))
            except _FAILURES as error:
                self._failed(error)
        if value is None:
            self._misses += 1
        else:
            self._hits += 1
        return value

    async def put(self, key: str, value: bytes) -> None:
        """Stores it, where it fits and the store can be reached."""
        if len(value) > self._most_bytes or self._resting():
            return
        try:
            await self._in_time(self._store.put(key, value))
        except _FAILURES as error:
            self._failed(error)

    async def close(self) -> None:
        await asyncio.gather(*self._late, return_exceptions=True)
        await self._store.close()

    async def _in_time(self, asking: Coroutine[Any, Any, Answer]) -> Answer:
        """What the store says. Raises TimeoutError if it is late. It is stopped then, which may
        take as long, so no call waits for that."""
        task = asyncio.create_task(asking)
        self._late.add(task)
        task.add_done_callback(self._over)
        try:
            done, _ = await asyncio.wait((task,), timeout=_ANSWER_SECONDS)
        finally:
            task.cancel()
        if not done:
            raise TimeoutError
        return task.result()

    def _over(self, task: asyncio.Task[Any]) -> None:
        self._late.discard(task)
        if not task.cancelled():
            task.exception()  # Looked at, so that asyncio does not log it.

    def figures(self) -> dict[str, float]:
        """For the metrics page."""
        return {
            "cache_hits_total": self._hits,
            "cache_misses_total": self._misses,
            "cache_failures_total": self._failures,
        }

    def _resting(self) -> bool:
        return time.monotonic() < self._rests_until

    def _failed(self, error: Exception) -> None:
        self._failures += 1
        self._rests_until = time.monotonic() + _REST_SECONDS
        log.warning("cache failed", where=self._where, error=str(error) or type(error).__name__)


async def open_cache(where: str, *, most_bytes: int, seconds: float | None) -> Cache:
    """The cache in the folder `where`, which is made, or in the Redis whose URL it is.

    `most_bytes`: of the folder, and of one entry. An entry lives for `seconds`, or until its place
    is needed (None). Raises StartError if it cannot be reached, or has no bound.
    """
    try:
        if urlsplit(where).scheme in _REDIS:
            shown = _without_password(where)
            store: _Store = await _Redis.open(where, seconds)
        else:
            shown = where
            store = await _Disk.open(where, most_bytes, seconds)
    except (*_FAILURES, ValueError) as error:
        raise StartError(
            f"cache {shown} cannot be used ({error or type(error).__name__}); name a folder that "
            "can be written to, or a Redis that runs and has a bound"
        ) from error
    return Cache(store, shown, most_bytes)


def cache_key(*parts: Any) -> str:
    """One key for equal parts, whatever the order of their mappings. Parts are what JSON can say;
    the first should tell what kind of answer it is, since kinds may share a cache."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()


class _PlainDisk(diskcache.Disk):  # type: ignore[misc]
    """Bytes as they are; an entry that was pickled, by whomever, is a miss (which an OSError is to
    diskcache)."""

    def fetch(self, mode: int, filename: str | None, value: Any, read: bool) -> Any:
        if mode == diskcache.core.MODE_PICKLE:
            raise OSError("the folder holds a pickle, which no cache of ours has written")
        return super().fetch(mode, filename, value, read)


class _Disk:
    """All calls in one thread, which alone holds the connection to the folder's database."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="cache")
        self._cache: Any = None

    @classmethod
    async def open(cls, where: str, most_bytes: int, seconds: float | None) -> _Disk:
        disk = cls(seconds)

        def make() -> Any:
            return diskcache.Cache(
                str(Path(where).expanduser()),
                timeout=_SECONDS,
                disk=_PlainDisk,
                size_limit=most_bytes,
                eviction_policy="least-recently-stored",
            )

        try:
            disk._cache = await disk._run(make)
        except BaseException:
            disk._thread.shutdown(wait=False)
            raise
        return disk

    async def get(self, key: str) -> bytes | None:
        found = await self._run(lambda: self._cache.get(key))
        return found if isinstance(found, bytes) else None

    async def put(self, key: str, value: bytes) -> None:
        await self._run(lambda: self._cache.set(key, value, expire=self._seconds))

    async def close(self) -> None:
        await self._run(self._cache.close)
        self._thread.shutdown()

    async def _run(self, work: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


_PREFIX = "toolwright:cache:"
_CONNECTIONS = 32


class _Redis:
    """The bound is the server's own, for all services that share it: it forgets what was not asked
    for the longest."""

    def __init__(self, client: redis.Redis, seconds: float | None) -> None:
        self._client = client
        self._milliseconds = None if seconds is None else max(1, int(seconds * 1000))

    @classmethod
    async def open(cls, where: str, seconds: float | None) -> _Redis:
        """Raises ValueError for a server that would grow without end, or store nothing once it is
        full."""
        pool = redis.BlockingConnectionPool.from_url(
            where,
            max_connections=_CONNECTIONS,
            timeout=_SECONDS,
            socket_timeout=_SECONDS,
            socket_connect_timeout=_SECONDS,
            retry=Retry(NoBackoff(), 1),
        )
        client = redis.Redis.from_pool(pool)
        try:
            _check_bound(await client.info("memory"), expires=seconds is not None)
        except BaseException:
            await client.aclose()
            raise
        return cls(client, seconds)

    async def get(self, key: str) -> bytes | None:
        found = await self._client.get(_PREFIX + key)
        return found if isinstance(found, bytes) else None

    async def put(self, key: str, value: bytes) -> None:
        await self._client.set(_PREFIX + key, value, px=self._milliseconds)

    async def close(self) -> None:
        await self._client.aclose()


def _check_bound(memory: Mapping[str, Any], *, expires: bool) -> None:
    """Raises ValueError. `memory`: what Redis says of its own."""
    forgets = ("allkeys-", "volatile-") if expires else ("allkeys-",)
    if not memory.get("maxmemory") or not memory.get("maxmemory_policy", "").startswith(forgets):
        raise ValueError(
            "it has no bound of its own: redis-cli config set maxmemory 1gb "
            "maxmemory-policy allkeys-lru"
        )
