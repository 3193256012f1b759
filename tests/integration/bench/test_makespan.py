"""`bench engine --trajectories` against a real engine: every figure of the report."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.slow

NUMBERS = ("makespan_ratio", "cpu_ms_per_trajectory", "rss_mb")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One short run with two samplers and with fewer places than trajectories."""
    folder = tmp_path_factory.mktemp("makespan")
    done = subprocess.run(
        [
            sys.executable, "-m", "bench.cli", "engine", "--trajectories", "6", "--rate", "1000",
            "--concurrency", "4", "--slow-sampler", "2", "--seed", "66",
            "--json", str(folder / "rows.json"), "--html", str(folder / "rows.html"),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "6 trajectories" in done.stderr, "progress is told"
    assert "<path" in (folder / "rows.html").read_text(encoding="utf-8")
    report: dict[str, Any] = json.loads((folder / "rows.json").read_text(encoding="utf-8"))
    return report


def test_the_row_has_what_it_promises(found: dict[str, Any]) -> None:
    (row,) = found["rows"]
    assert (row["trajectories"], row["chunk"]) == (6, 8)
    assert all(row[name] > 0 for name in NUMBERS)
    assert row["lag_ms"]["p99"] >= row["lag_ms"]["p50"] > 0
    assert all(row["bare"][name] > 0 for name in NUMBERS[:2])
    assert row["bare"]["makespan_ratio"] >= 1
    assert row["makespan_ratio"] >= 1


def test_no_token_is_wrong_and_no_call_is_lost(found: dict[str, Any]) -> None:
    (row,) = found["rows"]
    assert row["calls"] > 5
    assert row["wrong_tokens"] == row["bare"]["wrong_tokens"] == row["not_completed"] == 0
    assert row["slow_sampler"]["wrong_tokens"] == row["repeated_turns"] == 0


def test_the_stamps_of_three_processes_fit_together(found: dict[str, Any]) -> None:
    (row,) = found["rows"]
    assert row["places"] == 4
    for name in ("dispatch_ms", "resume_ms", "place_ms"):
        assert 0 < row[name]["p50"] <= row[name]["p99"] < 10_000
    assert sum(row["shares_s"].values()) <= row["makespan_s"]
    assert row["slow_sampler"]["makespan_to_fast_alone"] > 0
