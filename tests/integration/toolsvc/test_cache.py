"""The cache on a real disk and in a real Redis."""

import asyncio
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import diskcache
import pytest
import pytest_asyncio
from redis import Redis

from tests.support.redis import MEMORY, RedisServer, redis_server
from toolsvc.backends.cache import Cache, open_cache
from toolsvc.errors import StartError

pytestmark = pytest.mark.quick

MIB = 1 << 20


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with redis_server() as running:
        yield running


@pytest.fixture(params=["folder", "redis"])
def where(request: pytest.FixtureRequest, tmp_path: Path, server: RedisServer) -> str:
    if request.param == "folder":
        return str(tmp_path / "cache")
    with Redis(port=server.port) as client:
        client.flushall()
    return server.url


@pytest_asyncio.fixture
async def cache(where: str) -> AsyncIterator[Cache]:
    opened = await open_cache(where, most_bytes=MIB, seconds=None)
    yield opened
    await opened.close()


async def test_what_was_put_is_found_again_by_the_next_process(cache: Cache, where: str) -> None:
    assert await cache.get("a") is None
    await cache.put("a", b"\x00\xff")
    await cache.put("b", b"x" * 100_000)
    await cache.put("a", b"newer")
    await cache.put("too large", bytes(MIB + 1))  # drives nothing out
    again = await open_cache(where, most_bytes=MIB, seconds=None)
    assert await again.get("a") == b"newer"
    assert await again.get("b") == b"x" * 100_000
    assert await again.get("too large") is None
    assert again.figures()["cache_hits_total"] == 2
    await again.close()


async def test_what_was_stored_first_goes_first(tmp_path: Path) -> None:
    cache = await open_cache(str(tmp_path), most_bytes=MIB, seconds=None)
    size = 50_000
    for number in range(60):
        await cache.put(str(number), bytes(size))
    held = [number for number in range(60) if await cache.get(str(number)) is not None]
    assert held == list(range(60 - len(held), 60))
    assert 10 <= len(held) <= MIB // size
    await cache.close()


async def test_a_redis_keeps_to_its_own_bound(server: RedisServer) -> None:
    cache = await open_cache(server.url, most_bytes=MIB, seconds=None)
    for number in range(64):
        await cache.put(str(number), bytes(MIB))
    held = [number for number in range(64) if await cache.get(str(number)) is not None]
    assert 4 <= len(held) <= MEMORY // MIB
    assert cache.figures()["cache_failures_total"] == 0
    await cache.close()


@pytest.mark.parametrize(
    ("setting", "value"), [("maxmemory", "0"), ("maxmemory-policy", "volatile-lru")]
)
async def test_a_redis_without_a_bound_is_not_used(
    server: RedisServer, setting: str, value: str
) -> None:
    with Redis(port=server.port) as client:
        before = client.config_get(setting)[setting]
        client.config_set(setting, value)
        try:
            with pytest.raises(StartError, match="no bound of its own: redis-cli config set"):
                await open_cache(server.url, most_bytes=MIB, seconds=None)
            if value.startswith("volatile"):  # It forgets what expires, as all does then.
                await (await open_cache(server.url, most_bytes=MIB, seconds=60)).close()
        finally:
            client.config_set(setting, before)


async def test_entries_expire(where: str) -> None:
    cache = await open_cache(where, most_bytes=MIB, seconds=0.001)
    await cache.put("a", b"a")
    while await cache.get("a") is not None:
        pass
    await cache.close()


async def test_a_server_that_dies_is_a_miss_and_comes_back(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    rests, goes_on = [await open_cache(server.url, most_bytes=MIB, seconds=60) for _ in range(2)]
    await rests.put("a", b"a")
    server.stop()
    assert await rests.get("a") is None
    await rests.put("a", b"a")
    assert rests.figures()["cache_failures_total"] == 1  # It was not asked a second time.
    monkeypatch.setattr("toolsvc.backends.cache._REST_SECONDS", 0.0)
    assert await goes_on.get("a") is None
    server.start()
    await goes_on.put("a", b"again")
    assert await goes_on.get("a") == b"again"
    await rests.close()
    await goes_on.close()


async def test_a_server_that_hangs_costs_a_call_its_short_limit(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also calls that wait for a connection, of which there are fewer than calls."""
    cache = await open_cache(server.url, most_bytes=MIB, seconds=60)
    await cache.put("a", b"a")
    monkeypatch.setattr("toolsvc.backends.cache._ANSWER_SECONDS", 0.1)
    monkeypatch.setattr("toolsvc.backends.cache._REST_SECONDS", 0.0)
    server.pause()
    try:
        began = time.monotonic()
        assert set(await asyncio.gather(*(cache.get("a") for _ in range(50)))) == {None}
        await cache.put("a", b"b")
        assert time.monotonic() - began < 1.5
    finally:
        server.go_on()
    monkeypatch.setattr("toolsvc.backends.cache._ANSWER_SECONDS", 5.0)
    assert await cache.get("a") in (b"a", b"b")
    await cache.close()


async def test_a_folder_that_breaks_is_a_miss(tmp_path: Path) -> None:
    cache = await open_cache(str(tmp_path), most_bytes=MIB, seconds=60)
    await cache.put("a", b"a")
    with sqlite3.connect(tmp_path / "cache.db") as database:
        database.execute("DROP TABLE Cache")
    assert await cache.get("a") is None
    assert cache.figures()["cache_failures_total"] == 1
    await cache.close()


async def test_a_pickle_in_the_folder_is_not_loaded(tmp_path: Path) -> None:
    class Attack:
        def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
            return os.mkdir, (str(tmp_path / "attacked"),)

    with diskcache.Cache(tmp_path) as plain:
        plain.set("a", Attack())
    cache = await open_cache(str(tmp_path), most_bytes=MIB, seconds=None)
    assert await cache.get("a") is None
    assert not (tmp_path / "attacked").exists()
    await cache.close()


async def test_what_cannot_be_reached_at_the_start_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(StartError, match=f"cache {tmp_path}/file cannot be used"):
        await open_cache(str(tmp_path / "file"), most_bytes=MIB, seconds=None)
    with pytest.raises(StartError, match=r"cache redis://127.0.0.1:9/0 cannot be used") as caught:
        await open_cache("redis://user:secret@127.0.0.1:9/0", most_bytes=MIB, seconds=None)
    assert "secret" not in str(caught.value)
