"""`bench rollouts` with a real engine: both loops say every token, and neither beats its plan."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.quick


def test_both_loops_play_the_same_work(tmp_path: Path) -> None:
    out, page = tmp_path / "rows.json", tmp_path / "rows.html"
    done = subprocess.run(
        [
            sys.executable, "-m", "bench.cli", "rollouts", "sql", "--trajectories", "6",
            "--pace", "60", "--json", str(out), "--html", str(page),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(out.read_text(encoding="utf-8"))["rows"]
    assert row["calls"] > 3
    for way in (row["synchronous"], row["asynchronous"]):
        assert way["wrong_tokens"] == way["not_completed"] == 0
        assert way["to_allowed"] >= 1
    assert row["synchronous"]["allowed_s"] > row["asynchronous"]["allowed_s"]
    assert page.read_text(encoding="utf-8").count("<svg") == 2
