"""The scripted agents before the real tool: fixes are paid, and no cheat is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.integration.verltool_swe.conftest import PART, PROBLEMS, folders_of, played
from tests.support.swe import serving
from toolsvc.host.host import Host
from toolsvc.types import Result

pytestmark = [
    pytest.mark.quick,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.filterwarnings("ignore:.*is not an async function:pytest.PytestWarning"),
]

CHEATS = list(PART("world/cheats.CHEATS"))
AT_ONCE = 4
"""Trajectories: what a machine of two cores can do without timeouts."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def host(world: Path) -> AsyncIterator[Host]:
    async with serving(folders_of(world)) as running:
        yield running


async def together(*plays: Any) -> list[Result]:
    places = asyncio.Semaphore(AT_ONCE)

    async def one(play: Any) -> Result:
        async with places:
            found: Result = await play
            return found

    return await asyncio.gather(*map(one, plays))


async def test_the_recorded_fixes_are_paid_in_all_ten(host: Host) -> None:
    results = await together(*(played(host, name, "solving") for name in PROBLEMS))
    found = dict(zip(PROBLEMS, (result.reward for result in results), strict=True))
    assert found == dict.fromkeys(PROBLEMS, 1.0)


async def test_no_cheat_is_paid(host: Host) -> None:
    """Each kind once, in another repository than the last; what hangs is cut short."""
    plays = [
        played(host, "pages", "cheating", cheat, "pages-impatient")
        if cheat == "never ends"
        else played(host, list(PROBLEMS)[place % len(PROBLEMS)], "cheating", cheat)
        for place, cheat in enumerate(CHEATS)
    ]
    results = await together(*plays)
    found = dict(zip(CHEATS, (result.reward for result in results), strict=True))
    assert found == dict.fromkeys(CHEATS, 0.0)
    (hung,) = (r for cheat, r in zip(CHEATS, results, strict=True) if cheat == "never ends")
    assert hung.metrics["verification_timeout"] == 1.0
    tampered = {c for c, r in zip(CHEATS, results, strict=True) if r.metrics["tampered_files"]}
    assert tampered >= {"edits the tests", "deletes the tests", "patches conftest.py"}
