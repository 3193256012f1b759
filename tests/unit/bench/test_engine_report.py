"""Stamps become bars, shares and waits; the report warns of what spoils a row."""

from __future__ import annotations

from typing import Any

import pytest

from bench.engine import figures
from bench.engine.figures import Bar
from bench.engine.loads import LOADS
from bench.engine.measure import EngineRow, Timeline
from bench.engine.plan import TrajectoryPlan, Turn, Work
from bench.engine.report import page, remarks
from bench.measuring.report import Report
from tests.support.stills import data_of

S = 10**9
WORK = Work(trajectories=2, mix=LOADS["mixed"].mix, chunk=10, rate=10.0)
TWO = TrajectoryPlan(
    number=0,
    turns=(Turn(action_tokens=20, tool_ms=3000, answer_tokens=5), Turn(action_tokens=10)),
    seconds=6.0,
)
ONE = TrajectoryPlan(number=1, turns=(Turn(action_tokens=10),), seconds=1.0)
STAMPS = [(0, 0, 101 * S, 104 * S), (0, 1, 110 * S, 112 * S), (1, 0, 102 * S, 103 * S)]
TOOLS = {(0, 0): (105.0, 109.0)}


def bar(begin: float, end: float, number: int = 0) -> Bar:
    return Bar(
        number=number, generate=((begin, end),), tool=(), planned_generate_s=0, planned_tool_s=0
    )


LOOP = {"makespan_ratio": 1.5, "cpu_ms_per_trajectory": 3.0, "wrong_tokens": 0, "ideal_s": 6.0,
        "sampler_cpu_s": 1.0, "makespan_s": 9.0}  # fmt: skip
PAPER = {"synchronous": 87, "asynchronous": 66, "speed_up": 1.32}
SPEED_UP = {"speed_up": 1.3, "allowed_speed_up": 1.4}


def row(**changes: Any) -> EngineRow:
    seen = figures.bars([TWO, ONE], WORK, 100 * S, STAMPS, TOOLS)
    found: dict[str, Any] = {
        "load": "mixed", "trajectories": 2, "calls": 0, "ideal_s": 6.0, "makespan_ratio": 2.0,
        "rollouts_per_s": 0.2, "cpu_ms_per_trajectory": 6.0, "rss_mb": 90.0, "wrong_tokens": 7,
        "lag_ms": {"p50": 0.1, "p99": 2.0, "worst": 30.0}, "call_ms": {"p50": 0.3, "p99": 1.0},
        "busy_lag_ms": {"p50": 0.4, "p99": 9.0, "worst": 30.0}, "bare": LOOP, "barriers": None,
        "makespan_s": 12.0, "ramp_up_s": 2.0, "dispatch_ms": {"p50": 1.0, "p99": 4.0},
        "resume_ms": None, "place_ms": None, "not_completed": 0, "repeated_turns": 0,
        "shares_s": figures.shares(seen), "last_shares_s": figures.shares(seen[:1]),
        "load_average_before": 0.5, "cpu_s": {"engine": 1.0, "sampler": 1.0},
    }  # fmt: skip
    return EngineRow(
        figures=found | changes,
        timelines=[Timeline(title="Engine", bars=seen, ideal_s=6.0)],
    )


def test_a_bar_tells_what_waited_for_what() -> None:
    two, one = figures.bars([TWO, ONE], WORK, 100 * S, STAMPS, TOOLS)
    assert two.generate == ((1.0, 4.0), (10.0, 12.0))
    assert two.tool == ((5.0, 9.0),)
    assert (two.dispatch, two.resume) == ([1.0], [1.0])
    assert (one.begin, one.end) == (2.0, 3.0)


def test_shares_add_up_to_the_whole_time() -> None:
    (two,) = figures.bars([TWO], WORK, 100 * S, STAMPS, TOOLS)
    shares = figures.shares([two])
    assert shares == {
        "opening": 1.0, "generate": 3.0, "generate_late": 2.0, "dispatch": 1.0, "tool": 3.0,
        "tool_late": 1.0, "resume": 1.0,
    }  # fmt: skip


def test_a_trajectory_with_a_missing_stamp_has_no_bar() -> None:
    assert figures.bars([TWO], WORK, 0, STAMPS, {}) == []
    assert figures.bars([TWO], WORK, 0, STAMPS[:1], TOOLS) == []


def test_a_place_waits_from_an_end_to_the_next_beginning() -> None:
    bars = [bar(0, 5), bar(0, 2), bar(2.5, 9), bar(5.25, 6)]
    assert figures.place_waits(bars, 2) == [0.5, 0.25]
    assert figures.place_waits(bars, 4) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cpu_s": {"sampler": 11.9}}, "the sampler was busy all the time"),
        ({"paper": PAPER, "barriers": LOOP, **SPEED_UP}, "the engine was late by 6.0 s"),
        ({"repeated_turns": 2}, "2 more turns than planned"),
        ({"not_completed": 3}, "3 trajectories did not come to their end"),
        ({"place_ms": {"p50": 4.0, "p99": 8.0}}, "a free place was used after p50 4.0"),
        (
            {"slow_sampler": {"times_slower": 10.0, "makespan_to_fast_alone": 4.6,
                              "wrong_tokens": 0}},
            "10 times slower: 4.60 times the makespan",
        ),
    ],
)  # fmt: skip
def test_what_spoils_a_row_is_said(changes: dict[str, Any], words: str) -> None:
    assert not any(words in remark for remark in remarks(row()))
    assert any(words in remark for remark in remarks(row(**changes)))


def test_the_page_needs_nothing_else() -> None:
    report = Report(rows=(row(),), machine={"cores": "2"}, versions={"uvloop": "1"})
    blocks = data_of(page(report))["blocks"]
    (timeline,) = (block for block in blocks if block["kind"] == "timeline")
    assert timeline["title"].endswith("2 of 2 trajectories")
    assert timeline["bars"][0]["generate"]
