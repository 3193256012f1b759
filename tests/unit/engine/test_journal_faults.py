"""The journal when things go wrong: kills, full disks, foreign files, a second engine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from engine.core.trajectory.events import Streamed
from engine.errors import StartupError
from engine.serving.journal.journal import GROUP_COMMIT_S, Journal, JournalDamaged, JournalFull
from engine.serving.journal.schema import engine_lives
from tests.support.waiting import passes, until
from toolwright.types import WeightVersion, floats, ids

V0 = WeightVersion(lineage="a", step=0)
A = "g0000001-0/b1r0a0"


def streamed(*tokens: int) -> Streamed:
    return Streamed(
        token_ids=ids(tokens), logprobs=floats([-0.5] * len(tokens)), versions=((V0, len(tokens)),)
    )


async def add(journal: Journal, position: int, member: bytes = b"m") -> int:
    return await journal.add_group(
        position=position,
        identity=f"g{position}",
        members=[member],
        attempts=[f"g{position}-0/a"],
        versions=[V0],
    )


def limit_pages(journal: Journal, more: int) -> None:
    """The disk has room for so many more pages."""
    db = journal._db
    pages = db.execute("PRAGMA page_count").fetchone()[0]
    db.execute(f"PRAGMA max_page_count={pages + more}")


def size_of(file: Path) -> int:
    return file.stat().st_size


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "journal.sqlite"


@pytest.fixture
async def journal(file: Path) -> AsyncIterator[Journal]:
    opened = Journal(file)
    yield opened
    await opened.close()


async def test_a_full_disk_stores_nothing_of_a_group_and_the_journal_goes_on(
    journal: Journal,
) -> None:
    await add(journal, 0)
    limit_pages(journal, 2)
    for _ in range(2):
        with pytest.raises(JournalFull, match=r"no room for .*journal\.sqlite") as caught:
            await add(journal, 1, b"x" * 100_000)
        assert caught.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert caught.value.retry_after
        assert journal.full
    assert [g.id for g in await journal.groups_after(0, 10)] == ["g0"]
    assert journal.counts.accepted == 1
    limit_pages(journal, 1000)
    await add(journal, 1, b"x" * 100_000)
    assert not journal.full
    assert await journal.finished_positions() == {0, 1}


async def test_a_full_disk_loses_nothing_that_was_appended_and_ends_by_itself(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.serving.journal.writer.RETRY_S", 0.02)
    journal = Journal(file)
    journal.append(A, [streamed(0)])
    await journal.flush()
    limit_pages(journal, 2)
    appended = [streamed(0)]
    for number in range(1, 40):
        event = streamed(*([number] * 500))
        appended.append(event)
        journal.append(A, [event])
        await asyncio.sleep(0.005)
    await until(lambda: journal.full, "a full disk")
    with pytest.raises(JournalFull):
        await journal.flush()
    assert journal.backlog > 0
    limit_pages(journal, 10_000)
    await until(lambda: not journal.full, "room")
    assert journal.backlog == 0
    await journal.close()
    journal = Journal(file)
    assert (await journal.open_logs())["g0000001-0"].events == appended
    await journal.close()


async def test_an_attempt_that_is_given_up_on_a_full_disk_leaves_the_buffer(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.serving.journal.writer.RETRY_S", 0.02)
    limit_pages(journal, 1)
    for number in range(50):
        journal.append(f"g0000001-{number}/a", [streamed(*range(1000))])
    with pytest.raises(JournalFull):
        await journal.flush()
    held = journal.backlog
    for number in range(50):
        journal.forget(f"g0000001-{number}/a")
    await until(lambda: not journal.backlog and not journal.full, "an empty buffer")
    assert held == 50


async def test_an_acknowledgement_frees_room_for_what_waits(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.serving.journal.writer.RETRY_S", 0.02)
    number = await add(journal, 0, b"x" * 400_000)
    limit_pages(journal, 2)
    journal.append(A, [streamed(*range(20_000))])
    with pytest.raises(JournalFull):
        await journal.flush()
    assert await journal.acknowledge(number) == number
    await until(lambda: not journal.full, "room")
    assert len((await journal.open_logs())["g0000001-0"].events) == 1


async def test_a_disk_without_a_byte_left_is_waited_for(tmp_path: Path) -> None:
    """A real file system of 4 MiB, where this process may mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    script = (
        "import asyncio, os, sys\n"
        "from pathlib import Path\n"
        "sys.path.insert(0, str(Path(sys.argv[2])))\n"
        "from engine.serving.journal import writer\n"
        "from engine.serving.journal.journal import Journal, JournalFull\n"
        "from engine.core.trajectory.events import Streamed\n"
        "from toolwright.types import WeightVersion, floats, ids\n"
        "writer.RETRY_S = 0.05\n"
        "async def main():\n"
        "    disk = Path(sys.argv[1])\n"
        "    journal = Journal(disk / 'journal.sqlite')\n"
        "    (disk / 'ballast').write_bytes(bytes(3_000_000))\n"
        "    v = ((WeightVersion(lineage='a', step=0), 2000),)\n"
        "    count = 0\n"
        "    while not journal.full:\n"
        "        one = Streamed(token_ids=ids([count] * 2000), logprobs=floats([0.0] * 2000),"
        " versions=v)\n"
        "        journal.append('g-0/a', [one]); count += 1\n"
        "        await asyncio.sleep(0.01)\n"
        "    for _ in range(5):\n"
        "        journal.append('g-0/a', [one]); count += 1\n"
        "    await asyncio.sleep(0.2)\n"
        "    assert journal.full\n"
        "    os.remove(disk / 'ballast')\n"
        "    for _ in range(400):\n"
        "        await asyncio.sleep(0.01)\n"
        "        if not journal.full: break\n"
        "    await journal.close()\n"
        "    journal = Journal(disk / 'journal.sqlite')\n"
        "    print(count, len((await journal.open_logs())['g-0'].events))\n"
        "    await journal.close()\n"
        "asyncio.run(main())\n"
    )
    mount = (
        f"mount -t tmpfs -o size=4m tmpfs {disk} && exec {sys.executable} -c '{_quoted(script)}' "
        f"{disk} {Path.cwd()}"
    )
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount]
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=60, check=False
    )
    if "mount" in done.stderr or "unshare" in done.stderr:
        pytest.skip(f"no mounts here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    appended, found = done.stdout.split()[-2:]
    assert appended == found


def _quoted(text: str) -> str:
    return text.replace("'", "'\\''")


async def test_a_second_process_is_refused_in_one_sentence(journal: Journal, file: Path) -> None:
    await add(journal, 0)
    script = (
        "import sys; from pathlib import Path; from engine.serving.journal.journal import Journal\n"
        "from engine.errors import StartupError\n"
        "try: Journal(Path(sys.argv[1]))\n"
        "except StartupError as error: print(error); sys.exit(1)\n"
    )
    command = [sys.executable, "-c", script, str(file)]
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 1, done.stderr
    assert "stop it, or give this run another run.folder" in done.stdout
    assert f"process {os.getpid()}" in done.stdout
    assert "journal.sqlite" in done.stdout
    assert len(done.stdout.splitlines()) == 1
    assert await add(journal, 1) > 0  # the first one is not disturbed


async def test_whether_an_engine_lives_is_seen_and_looking_keeps_none_out(file: Path) -> None:
    assert not engine_lives(file)
    journal = Journal(file)
    assert engine_lives(file)
    await journal.close()
    assert not engine_lives(file)
    again = Journal(file)
    await journal.close()  # a second time: the lock is the other one's
    assert engine_lives(file)
    await again.close()
    with pytest.raises(RuntimeError, match="closed"):
        await again.flush()
    again.append(A, [streamed(1)])
    assert again.backlog == 0


async def test_a_reader_beside_the_engine_disturbs_nothing(journal: Journal, file: Path) -> None:
    with contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM groups").fetchone() == (0,)
        for position in range(20):
            await add(journal, position, b"x" * 10_000)
        assert reader.execute("SELECT count(*) FROM groups").fetchone() == (0,)
        reader.execute("COMMIT")
        assert reader.execute("SELECT count(*) FROM groups").fetchone() == (20,)


def test_what_is_no_journal_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.sqlite").write_text("no database " * 100, encoding="utf-8")
    with pytest.raises(StartupError, match="not a database"):
        Journal(tmp_path / "text.sqlite")
    with pytest.raises(StartupError, match="cannot be used"):
        Journal(tmp_path / "text.sqlite" / "journal.sqlite")
    (tmp_path / "folder").mkdir()
    with pytest.raises(StartupError, match="not a regular file"):
        Journal(tmp_path / "folder")


async def test_a_truncated_file_is_refused_and_stays_as_it_is(file: Path) -> None:
    journal = Journal(file)
    for position in range(30):
        await add(journal, position, b"x" * 20_000)
    await journal.close()
    whole = size_of(file)
    for size in (whole - 4096, whole // 2, 5000, 60):
        os.truncate(file, size)
        with pytest.raises(StartupError, match=r"cannot be used .*new run\.folder"):
            Journal(file)
        assert size_of(file) == size


async def test_a_journal_of_an_older_or_newer_engine_is_refused(file: Path) -> None:
    with contextlib.closing(sqlite3.connect(file)) as db:
        db.executescript(
            "CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);"
            "CREATE TABLE groups (sequence INTEGER PRIMARY KEY AUTOINCREMENT, position INTEGER);"
        )
    with pytest.raises(StartupError, match=r"older engine .*new run\.folder.*--fork RUN"):
        Journal(file)
    with contextlib.closing(sqlite3.connect(file)) as db:
        tables = "SELECT count(*) FROM sqlite_master WHERE name IN ('logs', 'events')"
        assert db.execute(tables).fetchone() == (0,)
        db.execute("PRAGMA user_version=99")
    with pytest.raises(StartupError, match="newer engine"):
        Journal(file)


async def test_pages_that_are_overwritten_while_it_runs_end_the_engine_with_a_sentence(
    file: Path,
) -> None:
    journal = Journal(file)
    for position in range(50):
        await add(journal, position, b"x" * 20_000)
    await journal.close()
    journal = Journal(file)
    with file.open("r+b") as stream:
        stream.seek(4096)
        stream.write(os.urandom(size_of(file) - 4096))
    with pytest.raises(JournalDamaged, match="is damaged"):
        for _ in range(2):
            await journal.groups_after(0, 100)
    await journal.close()


_WRITES = """
import asyncio, sys, time
from pathlib import Path
from engine.serving.journal.journal import Journal
from engine.core.trajectory.events import Streamed
from toolwright.types import WeightVersion, floats, ids

V = WeightVersion(lineage="a", step=0)

def one(*tokens):
    return Streamed(
        token_ids=ids(tokens), logprobs=floats([0.0] * len(tokens)), versions=((V, len(tokens)),)
    )

async def main():
    journal = Journal(Path(sys.argv[1]))
    print("open", flush=True)
    for step in range(100_000):
        for member in range(8):
            attempt = f"g{step // 50:07d}-{member}/a"
            journal.append(attempt, [one(step, part) for part in range(3)])
        print("appended", step, time.monotonic(), flush=True)
        if step % 50 == 49:
            group = step // 50
            number = await journal.add_group(
                position=group, identity=f"g{group}", members=[b"r" * 5000] * 8,
                attempts=[f"g{group:07d}-{member}/a" for member in range(8)], versions=[V],
            )
            print("stored", group, number, flush=True)
        elif step % 17 == 0:
            await journal.flush()
            print("flushed", step, flush=True)
        await asyncio.sleep(0.001)

asyncio.run(main())
"""


@pytest.mark.parametrize("seed", range(5))
async def test_kill_9_loses_at_most_the_last_commit_and_tears_nothing(
    file: Path, seed: int
) -> None:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _WRITES, str(file), stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    assert await child.stdout.readline() == b"open\n"
    await passes(random.Random(seed).uniform(0.02, 0.8), "rows are written")
    killed = time.monotonic()
    child.kill()
    lines = (await child.stdout.read()).splitlines(keepends=True)
    await child.wait()
    told = [line.split() for line in lines if line.endswith(b"\n")]
    steps = {int(words[1]): float(words[2]) for words in told if words[0] == b"appended"}
    stored = {int(words[1]) for words in told if words[0] == b"stored"}
    flushed = [int(words[1]) for words in told if words[0] == b"flushed"]

    journal = Journal(file)
    complete = await journal.finished_positions()
    logs = await journal.open_logs()
    assert stored <= complete
    durable = max(complete, default=-1) * 50 + 49 if complete else -1
    for name, log in logs.items():
        group, _, member = name.partition("-")
        assert int(group[1:]) not in complete
        told_ids = [tuple(event.token_ids) for event in log.events if isinstance(event, Streamed)]
        first = int(group[1:]) * 50
        seen = range(first, first + len(told_ids) // 3)
        # Whole appends, in order, from the first one on.
        assert told_ids == [(step, part) for step in seen for part in range(3)], member
        durable = max(durable, seen[-1])
    assert durable >= max(flushed, default=-1)
    # A second beyond the group commit, for a disk that others keep busy.
    lost = [step for step, at in steps.items() if step > durable and killed - at > 1.0]
    assert not lost, f"appended {GROUP_COMMIT_S + 1:g} s before the kill: {lost}"
    for found in await journal.groups_after(0, 10_000):
        assert found.members == (b"r" * 5000,) * 8
    assert journal.counts.accepted == 8 * len(complete)
    await journal.close()
