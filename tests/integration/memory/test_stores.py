"""A memory over its real stores: SQLite and Redis, several writers, writers that are killed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from memory.errors import GroupReused, NoVersion, Unusable
from memory.memory import Memory
from memory.search.embedding import hashing
from memory.store import Log
from memory.store.redis import RedisLog
from memory.store.sqlite import SqliteLog
from memory.types import GroupWork
from tests.integration.memory.writer import no_more_writers, opened, started
from tests.support.redis import RedisServer, redis_server
from tests.support.tool_memory import registering, tool, without_snapshots

pytestmark = pytest.mark.quick

WRITERS, EACH = 4, 25
KILLS = 20


@pytest.fixture(scope="module", autouse=True)
def _writers() -> Iterator[None]:
    yield
    no_more_writers()


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with redis_server("noeviction") as server:
        yield server


@pytest.fixture(params=["sqlite", "redis"])
def log(request: pytest.FixtureRequest, tmp_path: Path, redis: RedisServer) -> Iterator[Log]:
    made: Log = (
        SqliteLog(tmp_path / "memory.sqlite", embedder="hashing")
        if request.param == "sqlite"
        else RedisLog(redis.url, f"memory-{uuid4().hex}", embedder="hashing")
    )
    yield made
    made.close()


def test_a_store_that_lost_changes_says_so(log: Log) -> None:
    assert log.append("a", b"1", 0) == (1, b"1")
    assert log.append("b", b"2", 0) is None
    with pytest.raises(Unusable, match=r"has lost changes, it holds 1 of 3: restore its data"):
        log.append("c", b"3", 3)


def work(group: str, *descriptions: str, **parts: Any) -> GroupWork:
    made = (tool(f"{group}_{place}", text) for place, text in enumerate(descriptions))
    return registering(group, *made, **parts)


def names(memory: Memory, *subtasks: str, **asked: Any) -> list[str]:
    return [found.node.name for found in memory.retrieve(subtasks, **asked)]


def test_a_second_process_has_the_same_memory(log: Log) -> None:
    first, second = Memory(log, hashing), Memory(log, hashing)
    first.merge_group(work("a", "solve a quadratic equation", "count words of a text"))
    assert second.graph.version == 0
    merged = second.merge_group(work("b", "solve a quadratic equation"))
    assert (merged.version, merged.registered) == (2, {"b_0": "a_0"})
    assert first.at(2).nodes == second.graph.nodes
    assert first.graph.nodes == second.graph.nodes
    assert first.graph.vectors.tobytes() == second.graph.vectors.tobytes()


def test_a_group_that_comes_again_changes_nothing(log: Log) -> None:
    memory = Memory(log, hashing)
    asked = work("a", "count words")
    first = memory.merge_group(asked)
    memory.merge_group(work("b", "draw a circle"))
    assert memory.merge_group(asked) == first
    assert Memory(log, hashing).merge_group(replace(asked, delta=0.5)) == first
    assert memory.graph.version == 2
    with pytest.raises(GroupReused, match="name of its own"):
        memory.merge_group(work("a", "count letters"))
    assert memory.graph.version == 2


def test_every_version_can_be_asked(log: Log) -> None:
    memory = Memory(log, hashing)
    memory.merge_group(work("a", "count words of a text"))
    memory.merge_group(work("b", "count letters of a text"))
    assert names(memory, "count the letters", version=1) == ["a_0"]
    assert names(memory, "count the letters")[0] == "b_0"
    assert names(memory, "count the letters", version=0) == []
    for version in (-1, 3):
        with pytest.raises(NoVersion, match="0 to 2"):
            memory.at(version)


def test_a_log_takes_a_change_at_its_place_or_not_at_all(log: Log) -> None:
    assert log.append("a", b"1", 0) == (1, b"1")
    assert log.append("b", b"2", 0) is None and log.find("b") is None
    assert log.append("a", b"other", 1) == (1, b"1") == log.find("a")
    assert log.append("b", b"2", 1) == (2, b"2")
    assert [log.read(0), log.read(1, 1), log.read(2)] == [[b"1", b"2"], [b"2"], []]


def test_snapshots_are_found_from_the_newest_on(log: Log) -> None:
    assert log.snapshots(9) == [] and log.snapshot(3) is None
    log.keep(3, b"three")
    log.keep(7, b"old")
    log.keep(7, b"seven")
    assert (log.snapshots(9), log.snapshots(6)) == ([7, 3], [3])
    assert log.snapshot(7) == b"seven"


def test_another_embedder_is_refused(tmp_path: Path, redis: RedisServer) -> None:
    SqliteLog(tmp_path / "memory", embedder="minilm").close()
    with pytest.raises(Unusable, match="begun with the embedder 'minilm'"):
        SqliteLog(tmp_path / "memory", embedder="hashing")
    RedisLog(redis.url, "begun", embedder="minilm").close()
    with pytest.raises(Unusable, match="begun with the embedder 'minilm'"):
        RedisLog(redis.url, "begun", embedder="hashing")


def test_what_is_no_memory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no database" * 100, encoding="utf-8")
    with pytest.raises(Unusable, match=r"notes\.txt"):
        SqliteLog(tmp_path / "notes.txt", embedder="hashing")
    with pytest.raises(Unusable, match="cannot be used"):
        SqliteLog(tmp_path / "notes.txt" / "memory", embedder="hashing")
    with pytest.raises(Unusable, match="cannot be used"):
        RedisLog("redis://127.0.0.1:9", "nobody", embedder="hashing")


def test_a_redis_that_throws_tools_away_is_refused() -> None:
    with redis_server("allkeys-lru") as server, pytest.raises(Unusable, match="noeviction"):
        RedisLog(server.url, "evicted", embedder="hashing")


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
def test_writers_side_by_side_lose_nothing(kind: str, tmp_path: Path, redis: RedisServer) -> None:
    store = _store(kind, tmp_path, redis)
    writers = [started(store, f"w{number}", EACH) for number in range(WRITERS)]
    for process, _ in writers:
        process.join(60)
    assert [process.exitcode for process, _ in writers] == [0] * WRITERS
    memory = Memory(opened(store), hashing)
    assert memory.graph.version == WRITERS * EACH
    made = {f"w{number}_{place}" for number in range(WRITERS) for place in range(EACH)}
    assert set(memory.graph.names) == made


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
def test_a_killed_writer_leaves_what_it_promised_and_nothing_half(
    kind: str, tmp_path: Path, redis: RedisServer
) -> None:
    """Killed at twenty points, of merges and of the snapshots that every one of them makes."""
    store = _store(kind, tmp_path, redis)
    promised, seen = 0, set()
    for kill in range(KILLS):
        process, told = started(store, f"k{kill}", 10_000, snapshots=True)
        for _ in range(1 + kill % 3):
            promised = told.recv()
        time.sleep(kill * 0.0007)  # somewhere in the next merge
        process.kill()
        with contextlib.suppress(EOFError):
            while True:
                promised = told.recv()
        process.join(20)
        log = opened(store)
        memory = Memory(log, hashing)
        assert memory.graph.version in (promised, promised + 1)
        promised = memory.graph.version
        assert sum(node.support for node in memory.graph.nodes) == promised
        seen.update(log.snapshots(promised))
        log.close()
    log = opened(store)
    memory, whole = Memory(log, hashing), Memory(without_snapshots(log), hashing)
    assert len(seen) > KILLS / 2, "snapshots were being made"
    assert memory.graph.nodes == whole.graph.nodes
    assert memory.graph.vectors.tobytes() == whole.graph.vectors.tobytes()
    question = ["k7 number1", "k11"]
    assert memory.retrieve(question) == whole.retrieve(question) != []


def _store(kind: str, folder: Path, redis: RedisServer) -> str:
    return str(folder / "memory.sqlite") if kind == "sqlite" else f"{redis.url}#{uuid4().hex}"
