"""Events of attempts in the journal: durable soon, whole, and gone when nobody needs them."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from array import array
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from engine.core.images.media import media_of
from engine.core.trajectory.events import AnyEvent, Ended, Noted, Scored, Streamed
from engine.serving.journal.journal import Journal
from tests.support.waiting import holds_for, until
from toolwright.types import Event, StopReason, WeightVersion, floats, ids

V0 = WeightVersion(lineage="a", step=0)
A, B = "g0000001-0/b1r0a0", "g0000001-1/b1r0a0"


def streamed(*tokens: int) -> Streamed:
    return Streamed(
        token_ids=ids(tokens), logprobs=floats([-0.5] * len(tokens)), versions=((V0, len(tokens)),)
    )


async def complete(journal: Journal, *attempts: str, position: int = 1) -> int:
    return await journal.add_group(
        position=position,
        identity=f"g{position:07d}",
        members=[b"record"] * len(attempts),
        attempts=attempts,
        versions=[V0],
    )


def rows(file: Path, table: str) -> int:
    with contextlib.closing(sqlite3.connect(file)) as db:
        (count,) = db.execute(f"SELECT count(*) FROM {table}").fetchone()
    return int(count)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("engine.serving.journal.writer.TIDY_S", 0.05)
    return tmp_path / "journal.sqlite"


@pytest.fixture
async def journal(file: Path) -> AsyncIterator[Journal]:
    opened = Journal(file)
    yield opened
    await opened.close()


async def reopened(journal: Journal, file: Path) -> dict[str, tuple[str, list[AnyEvent]]]:
    """The open logs as the next life of the engine finds them."""
    await journal.close()
    again = Journal(file)
    logs = await again.open_logs()
    await again.close()
    return {name: (one.attempt, one.events) for name, one in logs.items()}


async def test_a_later_life_finds_what_was_appended_in_order(file: Path) -> None:
    journal = Journal(file)
    journal.append(A, [streamed(1, 2)])
    journal.append(B, [streamed(7)])
    journal.append(A, [streamed(3), streamed(4)])
    await journal.flush()
    journal.append(A, [streamed(5)])
    found = await reopened(journal, file)
    assert found == {
        "g0000001-0": (A, [streamed(1, 2), streamed(3), streamed(4), streamed(5)]),
        "g0000001-1": (B, [streamed(7)]),
    }


async def test_an_append_returns_at_once_and_is_durable_within_the_group_commit(
    journal: Journal, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine 100 appends may take as long as a group commit waits.
    monkeypatch.setattr("engine.serving.journal.writer.GROUP_COMMIT_S", 3.0)
    began = time.perf_counter()
    for number in range(100):
        journal.append(f"g0000001-{number}/a", [streamed(number)])
    assert time.perf_counter() - began < 2.0
    assert journal.backlog == 100
    await until(lambda: journal.backlog == 0, "the commit")
    assert (rows(file, "events"), journal.backlog) == (100, 0)


async def test_appends_of_one_attempt_between_two_commits_are_one_row(
    journal: Journal, file: Path
) -> None:
    for number in range(20):
        journal.append(A, [streamed(number)])
    await journal.flush()
    assert rows(file, "events") == 1


async def test_what_was_appended_before_a_call_that_writes_is_durable_when_it_returns(
    journal: Journal, file: Path
) -> None:
    journal.append(A, [streamed(1)])
    await complete(journal, "g0000002-0/a", position=2)
    assert rows(file, "events") == 1
    journal.append(A, [streamed(2)])
    await journal.acknowledge(1)
    assert rows(file, "events") == 2


async def test_a_complete_group_ends_the_logs_of_its_members_and_no_other(file: Path) -> None:
    journal = Journal(file)
    other = "g0000002-0/b1r0a0"
    journal.append("g0000001-0/b0r0a0", [streamed(9)])  # an attempt that was superseded
    for attempt in (A, B, other):
        journal.append(attempt, [streamed(1), Ended(reason=StopReason.ANSWERED)])
    await complete(journal, A, B)
    await until(lambda: rows(file, "events") == 1, "the sweep")
    assert rows(file, "logs") == 1
    assert await reopened(journal, file) == {
        "g0000002-0": (other, [streamed(1), Ended(reason=StopReason.ANSWERED)])
    }


async def test_rows_that_a_crash_left_before_the_sweep_are_swept_in_the_next_life(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.serving.journal.writer.TIDY_S", 60.0)
    journal = Journal(file)
    for attempt in (A, B, "g0000002-0/a"):
        journal.append(attempt, [streamed(1)])
    await complete(journal, A, B)
    await journal.close()
    assert rows(file, "events") == 3
    monkeypatch.setattr("engine.serving.journal.writer.TIDY_S", 0.05)
    journal = Journal(file)
    journal.append("g0000003-0/a", [streamed(3)])
    await until(lambda: rows(file, "events") == 2, "the sweep")
    assert set(await reopened(journal, file)) == {"g0000002-0", "g0000003-0"}


async def test_rows_behind_one_that_is_needed_stay_until_they_are_many(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.serving.journal.logs.SCATTERED_ROWS", 4)
    journal = Journal(file)
    journal.append(A, [streamed(1)])
    await journal.flush()

    async def one_more(position: int) -> None:
        attempt = f"g{position:07d}-0/b1r0a0"
        journal.append(attempt, [streamed(position)])
        await complete(journal, attempt, position=position)
        await asyncio.sleep(0.2)

    for position in (2, 3, 4, 5):
        await one_more(position)
    assert rows(file, "events") == 1 + 4
    await one_more(6)
    await until(lambda: rows(file, "events") == 1, "the sweep")
    assert await reopened(journal, file) == {"g0000001-0": (A, [streamed(1)])}


async def test_the_oldest_open_log_bounds_the_sweep(file: Path) -> None:
    """Rows between two open logs stay: one range of rows is deleted, and the older log is in it."""
    journal = Journal(file)
    journal.append(A, [streamed(1)])
    await journal.flush()
    journal.append("g0000002-0/b1r0a0", [streamed(2)])
    await complete(journal, "g0000002-0/b1r0a0", position=2)
    journal.append(B, [streamed(3)])
    await journal.flush()
    await complete(journal, "g0000003-0/b1r0a0", position=3)
    await holds_for(0.3, lambda: rows(file, "events") == 3, "no sweep")
    assert set(await reopened(journal, file)) == {"g0000001-0", "g0000001-1"}


async def test_a_life_that_keeps_nothing_takes_up_what_an_earlier_one_kept(file: Path) -> None:
    journal = Journal(file, history="all")
    for attempt in (A, B):
        journal.append(attempt, [streamed(1), Ended(reason=StopReason.ANSWERED)])
    await complete(journal, A)
    await journal.close()
    assert rows(file, "events") == 2
    journal = Journal(file)
    await until(lambda: rows(file, "events") == 1, "the sweep")
    assert set(await reopened(journal, file)) == {"g0000001-1"}


async def test_the_newest_attempt_is_gone_on_with(file: Path) -> None:
    journal = Journal(file)
    journal.append(A, [streamed(1)])
    journal.append("g0000001-0/b1r0a1", [streamed(2)])
    assert await reopened(journal, file) == {"g0000001-0": ("g0000001-0/b1r0a1", [streamed(2)])}


@pytest.mark.parametrize("durable", [False, True])
async def test_an_attempt_that_is_given_up_is_not_gone_on_with(file: Path, durable: bool) -> None:
    journal = Journal(file)
    blob = media_of(b"seen", "image/png")
    journal.append(A, [streamed(1)], [blob])
    journal.append(B, [streamed(2)])
    if durable:
        await journal.flush()
    journal.forget(A)
    assert set(await journal.open_logs()) == {"g0000001-1"}
    assert await journal.blob(blob.blob.sha256) is None
    assert set(await reopened(journal, file)) == {"g0000001-1"}
    assert (rows(file, "logs"), rows(file, "blobs")) == (1, 0)


async def test_a_blob_of_an_event_goes_from_the_attempt_to_its_group(file: Path) -> None:
    journal = Journal(file)
    shown, unused = media_of(b"shown", "image/png"), media_of(b"unused", "image/png")
    journal.append(A, [streamed(1)], [shown])
    journal.append("g0000001-0/b1r0a1", [streamed(1)], [shown])
    journal.append("g0000009-0/b1r0a0", [streamed(1)], [shown, unused])
    await journal.flush()
    assert rows(file, "blobs") == 2
    number = await complete(journal, "g0000001-0/b1r0a1")
    journal.forget("g0000009-0/b1r0a0")
    await journal.flush()
    assert await journal.blob(shown.blob.sha256) == b"shown"
    assert await journal.blob(unused.blob.sha256) is None
    await journal.acknowledge(number)
    assert await journal.blob(shown.blob.sha256) is None
    await journal.close()


async def test_a_group_that_is_not_stored_ends_no_log(journal: Journal) -> None:
    journal.append(A, [streamed(1)])
    with pytest.raises(ValueError, match="zip"):
        await journal.add_group(
            position=1, identity="g", members=[b"x", b"y"], attempts=[A], versions=[V0]
        )
    assert set(await journal.open_logs()) == {"g0000001-0"}
    await complete(journal, A)
    assert await journal.open_logs() == {}


async def test_history_all_keeps_every_log_and_offers_only_open_ones(file: Path) -> None:
    journal = Journal(file, history="all")
    given_up = "g0000001-0/b0r0a0"
    for attempt in (given_up, A, B, "g0000002-0/b1r0a0"):
        journal.append(attempt, [streamed(1)])
    journal.forget(given_up)
    number = await complete(journal, A, B)
    await journal.acknowledge(number)
    await journal.close()
    assert rows(file, "events") == 4
    journal = Journal(file, history="all")
    assert set(await journal.open_logs()) == {"g0000002-0"}
    await journal.close()
    journal = Journal(file)  # from now on only what is open is kept
    await until(lambda: rows(file, "logs") == 1, "what was kept to go")
    assert set(await reopened(journal, file)) == {"g0000002-0"}
    assert rows(file, "members") == 0


@pytest.mark.parametrize(
    "garbage", [b"", b"\xff" * 40, b"\x91\xc0", b"\x91" * 100_000, b"\x90 and more"]
)
async def test_an_unreadable_row_makes_only_its_trajectory_start_again(
    file: Path, garbage: bytes
) -> None:
    journal = Journal(file)
    for attempt in (A, B):
        journal.append(attempt, [streamed(1)])
        await journal.flush()
        journal.append(attempt, [streamed(2)])
        await journal.flush()
    await journal.close()
    with contextlib.closing(sqlite3.connect(file)) as db, db:
        db.execute("UPDATE events SET data = ? WHERE batch = 1", (garbage,))
    journal = Journal(file)
    assert set(await journal.open_logs()) == {"g0000001-1"}
    await complete(journal, A, B)
    assert await reopened(journal, file) == {}


class _Unknown:
    """Nothing that MessagePack knows."""


@pytest.mark.parametrize(
    "bad",
    [_Unknown(), 2**70, "\ud800", array("d", [1.0, 2.0]).__iter__()],
    ids=["unknown", "above-64-bits", "half-a-surrogate-pair", "iterator"],
)
async def test_an_event_that_cannot_be_encoded_costs_its_attempt_the_log_and_no_other(
    file: Path, bad: object
) -> None:
    journal = Journal(file)
    journal.append(A, [streamed(1)])
    await journal.flush()
    journal.append(A, [Noted(note=Event(kind="odd", turn=0, data={"value": bad}))])
    journal.append(B, [streamed(2)])
    await journal.flush()
    journal.append(A, [streamed(3)])
    assert await reopened(journal, file) == {"g0000001-1": (B, [streamed(2)])}


async def test_an_open_log_reads_while_others_are_appended(journal: Journal) -> None:
    async def one(number: int) -> None:
        attempt = f"g0000001-{number}/a"
        for turn in range(5):
            journal.append(attempt, [streamed(turn)])
            await asyncio.sleep(0.001)
        journal.append(attempt, [Ended(reason=StopReason.ANSWERED), Scored(reward=1.0)])

    async def look() -> None:
        for _ in range(10):
            for log in (await journal.open_logs()).values():
                assert ordered(log.events)
            await asyncio.sleep(0)

    await asyncio.gather(look(), *(one(number) for number in range(40)))
    logs = await journal.open_logs()
    assert len(logs) == 40
    assert all(len(log.events) == 7 for log in logs.values())


def ordered(events: Sequence[AnyEvent]) -> bool:
    told = [event.token_ids[0] for event in events if isinstance(event, Streamed)]
    return told == list(range(len(told)))
