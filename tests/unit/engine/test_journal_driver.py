"""The journal's writer without its thread: a driver decides when something becomes durable."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from engine.core.trajectory.events import Ended
from engine.serving.journal.journal import Journal
from engine.serving.journal.writer import Writer
from tests.support.waiting import passes
from toolwright.types import StopReason

pytestmark = pytest.mark.quick

ENDED = Ended(reason=StopReason.ANSWERED)


class ByHand:
    """A driver that a test steps."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.woken = 0
        self.is_over = False

    def start(self) -> None:
        pass

    def wake(self) -> None:
        self.woken += 1

    async def ended(self) -> None:
        while self.writer.step():
            pass
        self.writer.end()
        self.is_over = True


@pytest.fixture
def drivers() -> list[ByHand]:
    return []


def opened(tmp_path: Path, drivers: list[ByHand]) -> tuple[Journal, ByHand]:
    def drive(writer: Writer) -> ByHand:
        drivers.append(ByHand(writer))
        return drivers[-1]

    journal = Journal(tmp_path / "journal.sqlite", drive=drive)
    return journal, drivers[-1]


def logged(tmp_path: Path) -> list[str]:
    with sqlite3.connect(tmp_path / "journal.sqlite") as db:
        return [name for (name,) in db.execute("SELECT attempt FROM logs ORDER BY log")]


async def test_nothing_is_durable_before_a_step(tmp_path: Path, drivers: list[ByHand]) -> None:
    journal, driver = opened(tmp_path, drivers)
    journal.append("g0-0/a0", [ENDED])
    assert driver.woken and not logged(tmp_path)
    await passes(driver.writer.due(), "until the group commit is due")
    driver.writer.step()
    assert logged(tmp_path) == ["g0-0/a0"]
    await journal.close()
    assert driver.is_over


async def test_a_step_takes_at_most_so_many_appends_and_a_job_takes_all(
    tmp_path: Path, drivers: list[ByHand]
) -> None:
    journal, driver = opened(tmp_path, drivers)
    for number in range(3):
        journal.append(f"g0-{number}/a0", [ENDED])
    await passes(driver.writer.due(), "until the group commit is due")
    driver.writer.step(most=1)
    assert logged(tmp_path) == ["g0-0/a0"]
    assert driver.writer.backlog == 2 and driver.writer.due() < 1.0, "the rest has its time"
    flushing = asyncio.ensure_future(journal.flush())
    await asyncio.sleep(0)
    driver.writer.step(most=0)
    await flushing
    assert logged(tmp_path) == ["g0-0/a0", "g0-1/a0", "g0-2/a0"]
    await journal.close()


async def test_a_closed_writer_refuses_jobs_and_keeps_what_was_appended(
    tmp_path: Path, drivers: list[ByHand]
) -> None:
    journal, _driver = opened(tmp_path, drivers)
    journal.append("g0-0/a0", [ENDED])
    await journal.close()
    assert logged(tmp_path) == ["g0-0/a0"]
    with pytest.raises(RuntimeError, match="is closed"):
        await journal.flush()
    journal.append("g0-1/a0", [ENDED])
    assert logged(tmp_path) == ["g0-0/a0"]
