"""`bench engine` with a real engine: every token is right, and every figure is there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

NUMBERS = ("makespan_s", "rollouts_per_s", "cpu_ms_per_trajectory", "rss_mb")


def bench(folder: Path, *words: str) -> list[dict[str, Any]]:
    """The rows of a run that also writes a page."""
    out, page = folder / "rows.json", folder / "rows.html"
    done = subprocess.run(
        [sys.executable, "-m", "bench.cli", "engine", *words, "--json", str(out),
         "--html", str(page)],
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "6 trajectories" in done.stderr, "progress"
    assert '"kind": "timeline"' in page.read_text(encoding="utf-8")
    rows: list[dict[str, Any]] = json.loads(out.read_text(encoding="utf-8"))["rows"]
    for row in rows:
        for run in filter(None, (row, row["bare"], row["barriers"])):
            assert all(run[name] > 0 for name in NUMBERS)
            assert run["wrong_tokens"] == 0
            assert run["makespan_ratio"] >= 1
        assert row["not_completed"] == row["repeated_turns"] == row["call_errors"] == 0
        assert row["lag_ms"]["p99"] >= row["lag_ms"]["p50"] > 0
        assert row["calls"] > 3
        for name in ("call_ms", "round_trip_ms", "dispatch_ms", "resume_ms"):
            assert 0 < row[name]["p50"] <= row[name]["p99"] < 10_000
        assert sum(row["shares_s"].values()) <= row["makespan_s"]
    return rows


@pytest.mark.quick
def test_loops_with_and_without_barriers_play_the_same_work(tmp_path: Path) -> None:
    steady, sql = bench(tmp_path, "steady", "sql", "--trajectories", "6", "--pace", "60")
    assert (steady["calls"], steady["bare"], steady["barriers"]) == (120, None, None)
    assert steady["dispatch_ms"]["p50"] >= steady["call_ms"]["min"]
    assert sql["barriers"]["ideal_s"] > sql["ideal_s"]
    assert sql["allowed_speed_up"] > 1
    assert sql["speed_up"] > 0


@pytest.mark.slow
def test_fewer_places_a_slow_sampler_and_workers_lose_no_token(tmp_path: Path) -> None:
    (row,) = bench(
        tmp_path, "--trajectories", "6", "--rate", "1000", "--concurrency", "4",
        "--slow-sampler", "2", "--workers", "2", "--seed", "66",
    )  # fmt: skip
    assert (row["load"], row["trajectories"], row["chunk"], row["places"]) == ("mixed", 6, 8, 4)
    assert row["bare"]["lag_ms"]["worst"] > 0
    assert row["place_ms"]["p50"] > 0
    assert row["slow_sampler"]["wrong_tokens"] == 0
    assert row["slow_sampler"]["makespan_to_fast_alone"] > 0
    (split,) = row["workers"]
    assert (split["number"], split["wrong_tokens"], split["not_completed"]) == (2, 0, 0)
    assert all(split[name] > 0 for name in NUMBERS)
