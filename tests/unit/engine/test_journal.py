"""The journal's groups: whole or not at all, numbers once, counted without scans."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sqlite3
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from engine.core.images.media import Media, media_of
from engine.serving.journal.journal import TIDIED_GROUPS, Journal
from tests.support.waiting import until
from toolwright.types import WeightVersion
from toolwright.wire import content_hash

V0, V1 = WeightVersion(lineage="a", step=0), WeightVersion(lineage="a", step=1)


async def add(journal: Journal, position: int, *members: bytes, blobs: Sequence[Media] = ()) -> int:
    return await journal.add_group(
        position=position,
        identity=f"g{position}",
        members=members or (b"m",),
        attempts=[f"g{position}-{i}/b1r0a0" for i in range(len(members) or 1)],
        versions=[V0],
        blobs=blobs,
    )


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    opened = Journal(tmp_path / "deep" / "journal.sqlite")
    yield opened
    await opened.close()


async def test_a_group_comes_back_as_it_went_in(tmp_path: Path) -> None:
    file = tmp_path / "j.sqlite"
    journal = Journal(file)
    sequence = await journal.add_group(
        position=4,
        identity="g4",
        members=[b"one", b"", b"\x00\xff"],
        attempts=["g4-0/a", "g4-1/a", "g4-2/a"],
        versions=[V1, V0],
    )
    before = await journal.groups_after(0, 10)
    await journal.close()
    journal = Journal(file)
    (group,) = await journal.groups_after(0, 10)
    assert [group] == before
    assert (group.sequence, group.id) == (sequence, "g4")
    assert group.members == (b"one", b"", b"\x00\xff")
    assert group.hash == content_hash(group.members)
    assert group.versions == (V1, V0)
    assert await journal.finished_positions() == {4}
    await journal.close()


async def test_order_limit_and_mark(journal: Journal) -> None:
    numbers = [await add(journal, position) for position in (7, 3, 5)]
    assert numbers == sorted(numbers)
    assert [g.id for g in await journal.groups_after(0, 10)] == ["g7", "g3", "g5"]
    assert [g.id for g in await journal.groups_after(numbers[0], 1)] == ["g3"]
    assert await journal.groups_after(numbers[-1], 10) == []


async def test_a_dropped_group_is_offered_no_more_but_its_position_is_done(
    journal: Journal,
) -> None:
    numbers = [await add(journal, position, b"x", b"y") for position in range(3)]
    await journal.drop(numbers[1])
    assert [g.id for g in await journal.groups_after(0, 10)] == ["g0", "g2"]
    counts = journal.counts
    assert (counts.accepted, counts.dropped_groups) == (4, 1)
    assert await journal.finished_positions() == {0, 1, 2}


async def test_an_acknowledgement_frees_the_bytes_and_keeps_the_rest(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.sqlite")
    numbers = [await add(journal, position, b"x" * 100) for position in range(3)]
    assert await journal.acknowledge(numbers[1]) == numbers[1]
    assert await journal.acknowledge(numbers[0]) == numbers[1]  # never lowered
    counts = journal.counts
    assert (counts.accepted, counts.durable_sequence, counts.last_sequence) == (
        3, numbers[1], numbers[2],
    )  # fmt: skip
    assert await journal.finished_positions() == {0, 1, 2}
    (left,) = await journal.groups_after(numbers[1], 10)
    assert left.members == (b"x" * 100,)
    await journal.close()
    with sqlite3.connect(tmp_path / "j.sqlite") as db:
        held = db.execute("SELECT sequence FROM members").fetchall()
        hashes = db.execute("SELECT hash FROM groups ORDER BY sequence").fetchall()
    assert held == [(numbers[2],)]
    assert hashes == [(content_hash([b"x" * 100]),)] * 3


async def test_a_blob_is_held_once_and_as_long_as_a_group_needs_it(tmp_path: Path) -> None:
    file = tmp_path / "j.sqlite"
    shared, own = media_of(b"\x00shared", "image/png"), media_of(b"own", "image/png")
    journal = Journal(file)
    first = await add(journal, 0, blobs=[shared])
    second = await add(journal, 1, blobs=[own, shared, shared])
    third = await add(journal, 2, blobs=[shared])
    await journal.close()
    with sqlite3.connect(file) as db:
        assert db.execute("SELECT count(*) FROM blobs").fetchone() == (2,)
    db.close()
    journal = Journal(file)
    assert await journal.blob(shared.blob.sha256) == shared.data
    await journal.acknowledge(first)
    assert await journal.blob(shared.blob.sha256) == shared.data
    await journal.drop(second)
    assert await journal.blob(own.blob.sha256) is None
    assert await journal.blob(shared.blob.sha256) == shared.data
    await journal.acknowledge(third)
    assert await journal.blob(shared.blob.sha256) is None
    await journal.close()


async def test_a_group_that_is_not_stored_leaves_no_blob(journal: Journal) -> None:
    blob = media_of(b"own", "image/png")
    unstorable = Media(blob=media_of(b"other", "image/png").blob, data=None)  # type: ignore[arg-type]
    with pytest.raises(sqlite3.Error):
        await add(journal, 0, blobs=[blob, unstorable])
    assert await journal.blob(blob.blob.sha256) is None
    assert await journal.groups_after(0, 10) == []


async def test_a_commit_is_flushed_to_the_disk_before_it_counts(journal: Journal) -> None:
    """A kill cannot show this: what SQLite hands to the kernel survives the process."""
    (mode,) = journal._db.execute("PRAGMA journal_mode").fetchone()
    (synchronous,) = journal._db.execute("PRAGMA synchronous").fetchone()
    assert (mode, synchronous) == ("wal", 2), "WAL, FULL"


async def test_a_number_is_never_given_twice(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.sqlite")
    given = [await add(journal, position) for position in range(3)]
    for number in given:
        await journal.drop(number)
    await journal.acknowledge(given[-1])
    await journal.close()
    journal = Journal(tmp_path / "j.sqlite")
    assert await add(journal, 3) > max(given)
    await journal.close()


async def test_a_group_is_there_whole_or_not_at_all(journal: Journal) -> None:
    class Unstorable(bytes):
        """Has a length and a hash; SQLite has no place for it."""

        def __conform__(self, _protocol: object) -> object:
            return object()

    with pytest.raises(sqlite3.Error):
        await journal.add_group(
            position=0,
            identity="g0",
            members=[b"x", Unstorable(b"y")],
            attempts=["g0-0/a", "g0-1/a"],
            versions=[V0],
        )
    assert await journal.groups_after(0, 10) == []
    assert await journal.finished_positions() == set()
    assert journal.counts.accepted == 0
    assert await add(journal, 0) > 0  # and the journal goes on


async def test_it_can_be_used_by_many_tasks(journal: Journal) -> None:
    numbers = await asyncio.gather(*(add(journal, position, b"x") for position in range(50)))
    assert len(set(numbers)) == 50
    groups = await journal.groups_after(0, 100)
    assert [g.sequence for g in groups] == sorted(numbers)


async def test_versions_and_forks(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.sqlite")
    assert await journal.newest_version() is None
    await journal.set_version(V0, tmp_path / "a", None)
    await journal.set_version(V1, tmp_path / "b", None)
    fork = WeightVersion(lineage="b", step=0)
    await journal.set_version(fork, tmp_path / "c", V0)
    await journal.close()
    journal = Journal(tmp_path / "j.sqlite")
    assert await journal.newest_version() == (fork, tmp_path / "c")
    assert await journal.forks() == {"b": V0}
    await journal.close()


async def test_the_owner_stays_and_the_life_is_counted(tmp_path: Path) -> None:
    file = tmp_path / "j.sqlite"
    lives = []
    for _ in range(3):
        journal = Journal(file)
        lives.append((journal.owner, journal.boot))
        await journal.close()
    assert len({owner for owner, _ in lives}) == 1
    assert [boot for _, boot in lives] == [1, 2, 3]
    other = Journal(tmp_path / "other.sqlite")
    assert other.owner != lives[0][0]
    await other.close()


async def test_a_skipped_position_is_finished_and_counted_once(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.sqlite")
    await add(journal, 0)
    for _ in range(2):
        await journal.skip(3, "no such image")
    assert await journal.finished_positions() == {0, 3}
    assert journal.counts.skipped == 1
    await journal.close()
    journal = Journal(tmp_path / "j.sqlite")
    assert await journal.finished_positions() == {0, 3}
    assert journal.counts.skipped == 1
    await journal.close()


async def test_counts_kept_by_increments_are_those_of_a_scan(tmp_path: Path) -> None:
    """Seeded walks over all that changes a count; the next life counts by a scan."""
    chance = random.Random(7)
    for walk in range(6):
        file = tmp_path / f"{walk}.sqlite"
        journal, numbers = Journal(file), [0]
        for step in range(30):
            match chance.randrange(5):
                case 0 | 1:
                    members = [b"x"] * chance.randint(1, 4)
                    numbers.append(await add(journal, step, *members))
                case 2:
                    await journal.drop(chance.choice(numbers))
                case 3:
                    await journal.acknowledge(chance.choice(numbers))
                case 4:
                    await journal.skip(chance.randrange(100, 105), "why")
        kept = journal.counts
        await journal.close()
        journal = Journal(file)
        assert journal.counts == kept, f"walk {walk}"
        await journal.close()


async def test_what_is_acknowledged_goes_step_by_step_and_the_file_is_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.serving.journal.writer.TIDY_S", 0.001)
    monkeypatch.setattr("engine.serving.journal.journal.SPARE_PAGES", 64)
    file = tmp_path / "j.sqlite"
    journal = Journal(file)
    for turn in range(3):
        numbers = [await add(journal, 20 * turn + i, b"x" * 100_000) for i in range(20)]
        await journal.acknowledge(numbers[-1])
        with contextlib.closing(sqlite3.connect(file)) as db:
            (left,) = db.execute("SELECT count(*) FROM members").fetchone()
            assert left <= 20 - TIDIED_GROUPS
            for query, most in (("SELECT count(*) FROM members", 0), ("PRAGMA freelist_count", 64)):
                await until(lambda: db.execute(query).fetchone()[0] <= most, query)  # noqa: B023
    await journal.close()
    with contextlib.closing(sqlite3.connect(file)) as db:
        assert db.execute("PRAGMA page_count").fetchone()[0] * 4096 < 20 * 100_000 / 2


async def test_history_all_keeps_records_and_blobs_after_the_acknowledgement(
    tmp_path: Path,
) -> None:
    file, blob = tmp_path / "j.sqlite", media_of(b"shown", "image/png")
    journal = Journal(file, history="all")
    number = await add(journal, 0, b"record", blobs=[blob])
    dropped = await add(journal, 1, b"dropped", blobs=[blob])
    await journal.drop(dropped)
    await journal.acknowledge(dropped)
    assert await journal.blob(blob.blob.sha256) == blob.data
    await journal.close()
    with contextlib.closing(sqlite3.connect(file)) as db:
        held = db.execute("SELECT sequence, trajectory FROM members").fetchall()
    assert held == [(number, b"record"), (dropped, b"dropped")]


async def test_groups_of_one_moment_share_a_commit_and_a_broken_one_takes_only_itself(
    journal: Journal,
) -> None:
    await add(journal, 0)
    commits: list[str] = []
    trace = journal._db.set_trace_callback
    trace(lambda text: commits.append(text) if text.startswith("COMMIT") else None)
    done = await asyncio.gather(
        add(journal, 1),
        add(journal, 2, object()),
        add(journal, 3),
        return_exceptions=True,  # type: ignore[arg-type]
    )
    trace(None)
    assert [type(one) for one in done[::2]] == [int, int]
    assert isinstance(done[1], TypeError | sqlite3.Error)
    assert len(commits) == 1
    assert await journal.finished_positions() == {0, 1, 3}
    assert journal.counts.accepted == 3


async def test_callers_that_need_durable_events_share_a_commit(journal: Journal) -> None:
    before = journal.commits
    for number in range(64):
        journal.append(f"g0000001-0/b1r0a{number}", [])
    await asyncio.gather(*(journal.durable() for _ in range(64)))
    assert journal.backlog == 0
    assert journal.commits - before <= 3  # one may have begun with the first, one tidies
    again = await journal.secret()
    assert (len(again), await journal.secret()) == (32, again)
