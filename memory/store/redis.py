"""The log in Redis: for engines on several machines that share one memory.

A list holds the changes, a hash the version of each group. One script appends to both, so that
Redis' own single thread makes it all or nothing. A snapshot is a key, named in a sorted set.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import cast

import redis

from memory.errors import Unusable
from memory.store import PAGE, lost

ANSWER_SECONDS = 5.0
"""Longest time for an answer of Redis. Without it a silent Redis would hold every request."""
_APPEND = """
local version = redis.call('HGET', KEYS[2], ARGV[1])
if version then
    return {tonumber(version), redis.call('LINDEX', KEYS[1], tonumber(version) - 1)}
end
local length = redis.call('LLEN', KEYS[1])
if length < tonumber(ARGV[3]) then
    return length
end
if length > tonumber(ARGV[3]) then
    return false
end
local last = redis.call('RPUSH', KEYS[1], ARGV[2])
redis.call('HSET', KEYS[2], ARGV[1], last)
return {last, ARGV[2]}
"""
_KEEP = """
redis.call('SET', KEYS[2], ARGV[2])
return redis.call('ZADD', KEYS[1], ARGV[1], ARGV[1])
"""


class RedisLog:
    """The memory `name` in the Redis at `url`. Durable as far as that Redis is (appendonly)."""

    def __init__(self, url: str, name: str, *, embedder: str, read_only: bool = False) -> None:
        """embedder: its name; a memory keeps its first embedder. read_only: the memory must exist.
        Raises Unusable."""
        self._read_only = read_only
        self._where = f"memory {name} in Redis"
        self._changes, self._groups = f"{name}:changes", f"{name}:groups"
        self._snapshots = f"{name}:snapshots"
        self._redis = _client(url, self._where)
        try:
            if not read_only:
                self._redis.set(f"{name}:embedder", embedder, nx=True)
            begun = cast(bytes, self._redis.get(f"{name}:embedder")).decode(errors="replace")
            self._append = self._redis.register_script(_APPEND)
            self._keep = self._redis.register_script(_KEEP)
            evicts = self._evicts()
        except redis.RedisError as error:
            raise Unusable(f"{self._where} cannot be used: {error}") from error
        if evicts:
            raise Unusable(
                f"{self._where}: this Redis throws keys away when it is full (maxmemory-policy "
                f"{evicts}), and with them tools: CONFIG SET maxmemory-policy noeviction"
            )
        if begun != embedder:
            raise Unusable(
                f"{self._where} was begun with the embedder {begun!r}, not {embedder!r}: name that "
                "one, or begin another memory"
            )

    def _evicts(self) -> str:
        """The policy by which a full Redis would drop the log; empty where it refuses writes."""
        try:
            config = cast(dict[str, str], self._redis.config_get("maxmemory*"))
        except redis.ResponseError:  # a hosted Redis may hide its settings
            return ""
        policy = config.get("maxmemory-policy", "noeviction")
        bounded = config.get("maxmemory", "0") != "0"
        return policy if bounded and policy.startswith("allkeys") else ""

    def append(self, group: str, data: bytes, after: int) -> tuple[int, bytes] | None:
        with self._trouble("took no change"):
            found = self._append(keys=[self._changes, self._groups], args=[group, data, after])
        if isinstance(found, int):
            raise lost(self._where, found, after)
        return None if found is None else (int(found[0]), bytes(found[1]))

    def find(self, group: str) -> tuple[int, bytes] | None:
        with self._trouble("cannot be read"):
            version = cast(bytes | None, self._redis.hget(self._groups, group))
            if version is None:
                return None
            data = cast(bytes, self._redis.lindex(self._changes, int(version) - 1))
        return int(version), data

    def read(self, after: int, most: int = PAGE) -> Sequence[bytes]:
        with self._trouble("cannot be read"):
            return cast(list[bytes], self._redis.lrange(self._changes, after, after + most - 1))

    def keep(self, version: int, snapshot: bytes) -> None:
        if self._read_only:
            return
        with self._trouble("took no snapshot"):
            self._keep(keys=[self._snapshots, self._place(version)], args=[version, snapshot])

    def snapshots(self, most: int) -> Sequence[int]:
        with self._trouble("cannot be read"):
            found = cast(
                list[bytes],
                self._redis.zrange(self._snapshots, most, 0, desc=True, byscore=True),
            )
        return [int(version) for version in found]

    def snapshot(self, version: int) -> bytes | None:
        with self._trouble("cannot be read"):
            return cast(bytes | None, self._redis.get(self._place(version)))

    def _place(self, version: int) -> str:
        return f"{self._snapshots}:{version}"

    @contextmanager
    def _trouble(self, what: str) -> Iterator[None]:
        try:
            yield
        except redis.RedisError as error:
            raise Unusable(f"{self._where} {what}: {error}") from error

    def close(self) -> None:
        self._redis.close()


def begun(url: str, name: str) -> str:
    """The first embedder of a memory, "" if there is no memory. Raises Unusable."""
    where = f"memory {name} in Redis"
    try:
        found = cast("bytes | None", _client(url, where).get(f"{name}:embedder"))
    except redis.RedisError as error:
        raise Unusable(f"{where} cannot be read: {error}") from error
    return found.decode(errors="replace") if found else ""


def _client(url: str, where: str) -> redis.Redis:
    """Raises Unusable. The message leaves the address out, because it may hold a password."""
    try:
        return redis.Redis.from_url(
            url, socket_timeout=ANSWER_SECONDS, socket_connect_timeout=ANSWER_SECONDS
        )
    except ValueError as error:
        raise Unusable(
            f"{where} has no address that can be read: write redis://HOST:PORT/DB#NAME, and "
            "/, @, : and # of a password as %2F, %40, %3A and %23"
        ) from error
