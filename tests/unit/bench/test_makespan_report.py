"""Stamps become bars, shares and waits; the report says what needs a word."""

from __future__ import annotations

import re
from typing import Any

import pytest

from bench.makespan import figures
from bench.makespan.figures import Bar
from bench.makespan.measure import Report, Row
from bench.makespan.plan import Plan, Turn, Workload
from bench.makespan.report import MOST_BARS, lines, page, remarks, sampled, timeline

S = 10**9
WORKLOAD = Workload(trajectories=2, chunk=10, rate=10.0)
TWO = Plan(
    number=0,
    turns=(Turn(action_tokens=20, tool_ms=3000, answer_tokens=5), Turn(action_tokens=10)),
    seconds=6.0,
)
ONE = Plan(number=1, turns=(Turn(action_tokens=10),), seconds=1.0)
STAMPS = [(0, 0, 101 * S, 104 * S), (0, 1, 110 * S, 112 * S), (1, 0, 102 * S, 103 * S)]
TOOLS = {(0, 0): (105.0, 109.0)}


def bar(begin: float, end: float, number: int = 0) -> Bar:
    return Bar(
        number=number, generate=((begin, end),), tool=(), planned_generate_s=0, planned_tool_s=0
    )


def row(**changes: Any) -> Row:
    seen = figures.bars([TWO, ONE], WORKLOAD, 100 * S, STAMPS, TOOLS)
    found: dict[str, Any] = {
        "trajectories": 2, "chunk": 10, "makespan_ratio": 2.0, "cpu_ms_per_trajectory": 6.0,
        "rss_mb": 90.0, "wrong_tokens": 7,
        "lag_ms": {"p50": 0.1, "p99": 2.0, "worst": 30.0},
        "busy_lag_ms": {"p50": 0.4, "p99": 9.0, "worst": 30.0},
        "bare": {"makespan_ratio": 1.5, "cpu_ms_per_trajectory": 3.0, "wrong_tokens": 0,
                 "sampler_cpu_s": 1.0},
        "makespan_s": 12.0, "ramp_up_s": 2.0, "dispatch_ms": {"p50": 1.0, "p99": 4.0},
        "resume_ms": None, "place_ms": None, "not_completed": 0,
        "repeated_turns": 0,
        "cpu_s": {"engine": 1.0, "sampler": 1.0},
    }  # fmt: skip
    found |= changes
    return Row(
        figures=found,
        bars=tuple(seen),
        ideal_s=6.0,
        shares=figures.shares(seen),
        last_shares=figures.shares(seen[:1]),
    )


def report(**changes: Any) -> Report:
    return Report(rows=(row(**changes),), machine="two cores", versions={"uvloop": "1"})


def test_a_bar_tells_what_waited_for_what() -> None:
    two, one = figures.bars([TWO, ONE], WORKLOAD, 100 * S, STAMPS, TOOLS)
    assert two.generate == ((1.0, 4.0), (10.0, 12.0))
    assert two.tool == ((5.0, 9.0),)
    assert (two.dispatch, two.resume) == ([1.0], [1.0])
    assert (one.begin, one.end) == (2.0, 3.0)


def test_shares_add_up_to_the_whole_time() -> None:
    (two,) = figures.bars([TWO], WORKLOAD, 100 * S, STAMPS, TOOLS)
    shares = figures.shares([two])
    assert (shares.opening, shares.generate, shares.generate_late) == (1.0, 3.0, 2.0)
    assert (shares.tool, shares.tool_late) == (3.0, 1.0)
    assert (shares.dispatch, shares.resume) == (1.0, 1.0)


def test_a_trajectory_with_a_missing_stamp_has_no_bar() -> None:
    assert figures.bars([TWO], WORKLOAD, 0, STAMPS, {}) == []
    assert figures.bars([TWO], WORKLOAD, 0, STAMPS[:1], TOOLS) == []


def test_a_place_waits_from_an_end_to_the_next_beginning() -> None:
    bars = [bar(0, 5), bar(0, 2), bar(2.5, 9), bar(5.25, 6)]
    assert figures.place_waits(bars, 2) == [0.5, 0.25]
    assert figures.place_waits(bars, 4) == []


def test_percentiles_of_too_little_are_none() -> None:
    assert figures.percentiles([1.0]) is None
    assert figures.percentiles([0.0, 0.1]) == {"p50": pytest.approx(50), "p99": pytest.approx(99)}


def test_the_table_has_both_loops_and_the_wrong_tokens() -> None:
    text = list(lines(report()))[1].split()
    assert text == ["2", "10", "2.000", "1.500", "6.00", "3.00", "2.00", "90", "0.1", "2.0",
                    "1.0", "4.0", "-", "7"]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cpu_s": {"sampler": 11.9}}, "the sampler was busy all the time"),
        ({"repeated_turns": 2}, "2 more turns than planned"),
        ({"not_completed": 3}, "3 trajectories did not come to their end"),
        ({"place_ms": {"p50": 4.0, "p99": 8.0}}, "a place was used again after p50 4.0"),
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


def test_the_picture_keeps_the_last_and_thins_out_the_rest() -> None:
    bars = [bar(0, end, end) for end in range(5000)]
    chosen = sampled(bars)
    assert len(chosen) <= MOST_BARS
    assert [one.number for one in chosen[-5:]] == [4995, 4996, 4997, 4998, 4999]
    assert sampled(bars[:10]) == bars[:10]


def test_the_timeline_draws_every_span_to_scale() -> None:
    (two,) = figures.bars([TWO], WORKLOAD, 100 * S, STAMPS, TOOLS)
    drawn = timeline([two], 6.0)
    widths = {
        style: [float(width) for width in re.findall(r"h([\d.]+)", path)]
        for style, path in re.findall(r'<path class="(\w+)" d="([^"]*)"', drawn)
    }
    assert len(widths["generate"]) == 2
    assert widths["generate"][0] / widths["tool"][0] == pytest.approx(3 / 4, rel=0.01)
    assert widths["wait"][0] / widths["tool"][0] == pytest.approx(12 / 4, rel=0.01)


def test_the_page_needs_nothing_else() -> None:
    text = page(report())
    assert "2 of 2 trajectories" in text
    assert not re.search(r"(?:src|href)=", text)
    assert "<script" not in text
