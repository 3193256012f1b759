"""`bench study cheats` in real boxes: one cheat that pays only where tests import the code, one
that pays only in the agent's own box, and both controls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.studies.cheating import FIX, NOTHING, PLACES, WAYS
from bench.studies.cheats import ROWS, paid, played, summed

pytestmark = pytest.mark.slow

ASSERTIONS, RUNNER = "patches the assertions", "replaces the runner"


async def test_verdicts_pay_what_their_place_and_way_let_pass(tmp_path: Path) -> None:
    rows = await played(tmp_path, (FIX, NOTHING, ASSERTIONS, RUNNER), most=1)

    def of(cheat: str) -> dict[Any, bool]:
        return {
            (place, way): paid({"rows": summed(rows)}, cheat, place, way) == (1, 1)
            for place in PLACES
            for way in WAYS
        }

    assert all(of(FIX).values())
    assert not any(of(NOTHING).values())
    assert {key for key, own in of(ASSERTIONS).items() if own} == {
        (place, WAYS[1]) for place in PLACES
    }
    assert {key for key, own in of(RUNNER).items() if own} == {
        (place, way) for place in PLACES[1:] for way in WAYS
    }
    written = (tmp_path / ROWS).read_text(encoding="utf-8")
    assert await played(tmp_path, (FIX, NOTHING, ASSERTIONS, RUNNER), most=1) == rows
    assert (tmp_path / ROWS).read_text(encoding="utf-8") == written
