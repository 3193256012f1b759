"""Every fifth seed from 3 on: see `runs.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.seeds.runs import play

pytestmark = [pytest.mark.quick, pytest.mark.timeout(240)]


def test_a_seeded_run_keeps_every_promise(seed: int, tmp_path: Path) -> None:
    play(seed, tmp_path)
