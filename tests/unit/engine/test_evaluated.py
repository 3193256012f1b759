"""Evaluation trajectories in the journal: numbered, kept up to a bound, gone once acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from engine.serving.delivery.evaluated import EvaluationDelivery
from engine.serving.journal.journal import Journal
from tests.support.finished_trajectories import trajectory

KEEP = 3


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    opened = Journal(tmp_path / "journal.sqlite")
    yield opened
    await opened.close()


async def add(to: EvaluationDelivery, index: int, settings: str = "s") -> None:
    await to.add(trajectory(index, id=f"ea@0.suite-{index}"), settings)


async def leased(
    of: EvaluationDelivery, after: int = 0, limit: int = 9, wait: float = 0.01
) -> list[int]:
    return [group.sequence async for group in of.lease(after=after, limit=limit, wait=wait)]


async def test_a_row_of_the_same_settings_is_stored_once(journal: Journal) -> None:
    to = EvaluationDelivery(journal, keep=KEEP)
    for settings in ("s", "s", "other"):
        await add(to, 0, settings)
    assert await leased(to) == [1, 2]


async def test_the_newest_are_kept_and_the_numbers_show_the_rest(journal: Journal) -> None:
    to = EvaluationDelivery(journal, keep=KEEP)
    for index in range(5):
        await add(to, index)
    assert await leased(to) == [3, 4, 5]
    assert await leased(to, after=4) == [5]


async def test_a_number_is_never_given_twice(tmp_path: Path) -> None:
    for life in range(3):
        journal = Journal(tmp_path / "journal.sqlite")
        to = EvaluationDelivery(journal, keep=KEEP)
        await add(to, life)
        assert await leased(to) == [life + 1]
        assert await to.acknowledge(life + 1) == life + 1
        assert await to.acknowledge(1) == life + 1  # a mark never falls
        await journal.close()


async def test_a_lease_waits_for_the_next_row(journal: Journal) -> None:
    to = EvaluationDelivery(journal, keep=KEEP)
    waiting = asyncio.create_task(leased(to, limit=2, wait=20.0))
    for index in range(2):
        await asyncio.sleep(0.01)
        await add(to, index)
    assert await waiting == [1, 2]


async def test_nothing_is_stored_without_a_bound(journal: Journal) -> None:
    to = EvaluationDelivery(journal, keep=0)
    await add(to, 0)
    assert await journal.last_evaluated() == 0
