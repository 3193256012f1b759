"""The journal: groups whole or not at all, numbers once, one process at a time."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import grpc
import pytest

from engine.errors import StartupError
from engine.images.media import Media, media_of
from engine.journal.journal import Journal, JournalFull
from toolwright.types import WeightVersion
from toolwright.wire import content_hash

V0, V1 = WeightVersion(lineage="a", step=0), WeightVersion(lineage="a", step=1)


async def add(journal: Journal, position: int, *members: bytes, blobs: Sequence[Media] = ()) -> int:
    return await journal.add_group(
        position=position,
        identity=f"g{position}",
        members=members or (b"m",),
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
        position=4, identity="g4", members=[b"one", b"", b"\x00\xff"], versions=[V1, V0]
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
    await journal.drop([numbers[1]])
    assert [g.id for g in await journal.groups_after(0, 10)] == ["g0", "g2"]
    counts = await journal.counts()
    assert (counts.accepted, counts.dropped_groups) == (4, 1)
    assert await journal.finished_positions() == {0, 1, 2}


async def test_an_acknowledgement_frees_the_bytes_and_keeps_the_rest(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.sqlite")
    numbers = [await add(journal, position, b"x" * 100) for position in range(3)]
    assert await journal.acknowledge(numbers[1]) == numbers[1]
    assert await journal.acknowledge(numbers[0]) == numbers[1]  # never lowered
    counts = await journal.counts()
    assert (counts.accepted, counts.durable_sequence, counts.last_sequence) == (
        3, numbers[1], numbers[2],
    )  # fmt: skip
    assert await journal.finished_positions() == {0, 1, 2}
    (left,) = await journal.groups_after(numbers[1], 10)
    assert left.members == (b"x" * 100,)
    await journal.close()
    with sqlite3.connect(tmp_path / "j.sqlite") as db:
        held = db.execute("SELECT sequence FROM members").fetchall()
    assert held == [(numbers[2],)]


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
    await journal.drop([second])
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


async def test_a_number_is_never_given_twice(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.sqlite")
    given = [await add(journal, position) for position in range(3)]
    await journal.drop(given)
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
            position=0, identity="g0", members=[b"x", Unstorable(b"y")], versions=[V0]
        )
    assert await journal.groups_after(0, 10) == []
    assert await journal.finished_positions() == set()
    assert (await journal.counts()).accepted == 0
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


async def test_a_second_process_is_refused_in_one_sentence(
    journal: Journal, tmp_path: Path
) -> None:
    await add(journal, 0)
    script = (
        "import sys; from pathlib import Path; from engine.journal.journal import Journal\n"
        "from engine.errors import StartupError\n"
        "try: Journal(Path(sys.argv[1]))\n"
        "except StartupError as error: print(error); sys.exit(1)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "deep" / "journal.sqlite")]
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 1, done.stderr
    assert "does another engine serve this run folder?" in done.stdout
    assert "journal.sqlite" in done.stdout
    assert len(done.stdout.splitlines()) == 1
    assert await add(journal, 1) > 0  # the first one is not disturbed


def test_what_is_no_journal_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.sqlite").write_text("no database " * 100)
    with pytest.raises(StartupError, match="not a database"):
        Journal(tmp_path / "text.sqlite")
    with pytest.raises(StartupError, match="cannot be used"):
        Journal(tmp_path / "text.sqlite" / "journal.sqlite")
    (tmp_path / "folder").mkdir()
    with pytest.raises(StartupError, match="unable to open"):
        Journal(tmp_path / "folder")


async def test_a_full_disk_stores_nothing_and_the_journal_goes_on(journal: Journal) -> None:
    await add(journal, 0)
    db = journal._db
    pages = db.execute("PRAGMA page_count").fetchone()[0]
    db.execute(f"PRAGMA max_page_count={pages + 2}")
    for _ in range(2):
        with pytest.raises(JournalFull, match=r"no room for .*journal\.sqlite") as caught:
            await add(journal, 1, b"x" * 100_000)
        assert caught.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert caught.value.retry_after
    assert [g.id for g in await journal.groups_after(0, 10)] == ["g0"]
    db.execute(f"PRAGMA max_page_count={pages + 1000}")
    await add(journal, 1, b"x" * 100_000)
    assert await journal.finished_positions() == {0, 1}
