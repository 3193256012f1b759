"""`bench ingress`: options, traffic, and latencies from the times of client and sampler."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median

import pytest
from typer.testing import CliRunner

from bench.cli import app
from bench.ingress.agents import MadeCall
from bench.ingress.measure import added
from bench.ingress.traffic import TRAFFIC

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--traffic", "chess"], "there are plain, reported, connections"),
        (["--agents", "99999999"], "ulimit -n"),
    ],
)
def test_options_that_do_not_fit_are_refused_in_one_sentence(
    words: list[str], sentence: str
) -> None:
    done = CliRunner().invoke(app, ["ingress", *words])
    assert done.exit_code == 2
    assert sentence in done.output
    assert len(done.output.strip().splitlines()) == 1


def test_traffic_has_the_medians_that_it_names() -> None:
    sessions = [one for seed in range(40) for one in TRAFFIC["reported"].all(seed)]
    assert median(one.calls for one in sessions) == pytest.approx(43, rel=0.15)
    replies = [tokens for one in sessions for tokens in one.replies]
    assert median(replies) == pytest.approx(444, rel=0.05)
    with_sub_agents = sum(one.sub_calls > 0 for one in sessions) / len(sessions)
    assert with_sub_agents == pytest.approx(0.44, abs=0.1)
    assert {one.calls for one in TRAFFIC["plain"].all()} == {32}


def test_added_latency_leaves_out_the_samplers_time() -> None:
    made = [
        MadeCall(
            attempt="a",
            number=number,
            fresh=number == 0,
            asked_ns=at * 10**6,
            said_ns=(at + 40) * 10**6,
            ended_ns=(at + 45) * 10**6,
        )
        for number, at in enumerate((0, 100))
    ]
    stamps = [("a", 110 * 10**6, 135 * 10**6), ("a", 5 * 10**6, 35 * 10**6)]
    found = added(made, stamps)
    at_p50 = {name: spread["p50"] for name, spread in found.items()}
    assert at_p50 == {"first_ms": 15.0, "text_ms": 15.0, "durable_ms": 20.0}


@pytest.mark.slow
def test_a_small_run_has_figures_and_no_failure(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    small = ["--agents", "2", "--calls", "3", "--context", "800", "--rate", "0"]
    traffic = ["--traffic", "reported", "--traffic", "connections"]
    done = CliRunner().invoke(app, ["ingress", *traffic, *small, "--json", str(file)])
    assert done.exit_code == 0, done.output
    rows = json.loads(file.read_text(encoding="utf-8"))["rows"]
    assert [row["failed"] for row in rows] == [0, 0]
    assert all(row["calls"] >= 6 for row in rows)
    assert all(row["cpu_ms_per_call"]["engine"] > 0 for row in rows)
    assert "load average" in done.output
