"""`bench tools` against real services: every mode, the report, and nothing left behind."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

pytestmark = pytest.mark.slow

BENCH = [sys.executable, "-m", "bench.cli", "tools"]
LATENCIES = {"min", "avg", "p50", "p90", "p99", "max"}


def bench(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*BENCH, *options], capture_output=True, text=True, timeout=200, check=False
    )


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One short run of two tools in every mode."""
    folder = tmp_path_factory.mktemp("report")
    done = bench(
        "--workload", "stateful,noop", "--concurrency", "3", "--bursts", "2", "--seconds", "0.5",
        "--mode", "burst,closed,open,sessions,opens,rush", "--rate", "40",
        "--json", str(folder / "report.json"), "--html", str(folder / "report.html"),
        "--", "--ready", "2", "--shards", "1",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\nstateful ") == 6
    assert "<h2>stateful, open 40/s</h2>" in (folder / "report.html").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    return found


def test_every_row_is_there_and_sound(report: dict[str, Any]) -> None:
    rows = report["rows"]
    assert [(row["workload"], row["concurrency"], row["mode"]) for row in rows] == [
        (workload, 3, mode)
        for workload in ("stateful", "noop")
        for mode in ("burst", "closed", "open", "sessions", "opens", "rush")
    ]
    for row in rows:
        # `stateful` checks each answer: a call that was lost or made twice would be an error.
        assert row["errors"] == 0, row["error_texts"]
        assert set(row["latency_ms"]) == LATENCIES
        assert 0 < row["latency_ms"]["min"] <= row["latency_ms"]["p50"] <= row["latency_ms"]["max"]
        assert row["requests"] > 0
        assert row["requests_per_s"] > 0
        assert row["floor_cpu_ms_per_call"] > 0
        assert row["cpu_ms_per_call"] > row["client_cpu_ms_per_call"] > 0
        parts = row["wire_ms"] + row["queue_ms"] + row["run_ms"]
        assert parts == pytest.approx(sum(p["avg"] for p in row["parts_ms"].values()))
        assert row["rss_mib"] > 0
    assert report["machine"]["cores"]
    assert report["versions"]["grpcio"]


def test_bursts_are_counted_call_by_call(report: dict[str, Any]) -> None:
    for row in report["rows"]:
        if row["mode"] == "burst":
            assert row["requests"] == 2 * row["concurrency"]
        if row["mode"] in ("opens", "rush"):
            assert row["requests"] == row["concurrency"]


def test_sandboxes_are_named_and_weighed(report: dict[str, Any]) -> None:
    for row in report["rows"]:
        if row["workload"] == "noop":
            assert row["isolation"] == ""
        else:
            assert row["isolation"] in ("full", "compat", "per-session")
            # The children of the zygote, in pid namespaces of their own, are seen.
            assert row["pss_mib_per_session"] > 0.5


def test_nothing_is_left(report: dict[str, Any]) -> None:
    left = [
        process.info["cmdline"]
        for process in psutil.process_iter(["cmdline"])
        if "bench.tools.load.floor" in (process.info["cmdline"] or ())
    ]
    assert left == []


@pytest.fixture
def target(tmp_path: Path) -> Iterator[str]:
    """A service that somebody else started."""
    with subprocess.Popen(
        [sys.executable, "-c", "from toolsvc.cli import main; main()", "serve",
         "bench/tools/load/noop.py", "--listen", "127.0.0.1:0"],
        stdout=subprocess.PIPE, stderr=(tmp_path / "log").open("w", encoding='utf-8'), text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        yield process.stdout.readline().split(" on ")[1].strip()
        process.terminate()


def test_a_service_that_runs_already_is_measured_and_compared(target: str, tmp_path: Path) -> None:
    options = ("--workload", "noop", "--concurrency", "2,4", "--mode", "burst", "--target", target)
    first = bench(*options, "--json", str(tmp_path / "old.json"))
    assert first.returncode == 0, first.stderr
    row = json.loads((tmp_path / "old.json").read_text(encoding="utf-8"))["rows"][0]
    # Its processes were found by its port.
    assert row["cpu_ms_per_call"] > row["client_cpu_ms_per_call"]
    assert row["rss_mib"] > 0
    second = bench(*options, "--compare", str(tmp_path / "old.json"))
    assert second.returncode == 0, second.stderr
    for concurrency in (2, 4):
        assert second.stdout.count(f"noop, burst, {concurrency}  ") == 3
    assert "by chance" in second.stdout


def test_a_service_without_the_tool_is_refused(target: str) -> None:
    done = bench("--workload", "hello", "--target", target)
    assert done.returncode == 1
    assert "does not serve python" in done.stderr


def test_a_service_that_does_not_start_says_why() -> None:
    done = bench("--concurrency", "2", "--", "--no-such-option")
    assert done.returncode == 1
    assert "service ended with exit code 2" in done.stderr
    assert "no-such-option" in done.stderr
