"""What is read out of the rows: knee, changes, plans, workloads, the JSON and the page."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.errors import UsageError
from bench.measuring.report import Report
from bench.tools.load import verltool
from bench.tools.load.workloads import WORKLOADS
from bench.tools.plan import SweepPlan, parse_plan
from bench.tools.reading.compare import Verdict, compare, judge, rank_sum, read_report, verdicts
from bench.tools.reading.knee import knee
from bench.tools.reading.page import render
from bench.tools.reading.rows import MIB, Memory, Mode, ToolRow
from tests.support.shots import one_round
from tests.support.stills import data_of, words_of

MEMORY = Memory(rss=300 * MIB, pss=90 * MIB, idle_pss=50 * MIB, sessions=20)


def a_row(concurrency: int = 20, mode: Mode = Mode.BURST, *, slower: float = 2.0) -> ToolRow:
    rounds = [one_round(9.0 + n, 10.0 + n, 11.0 + n, slower=slower) for n in range(5)]
    return ToolRow.of("hello", mode, concurrency, rounds, MEMORY)


def a_report(*rows: ToolRow) -> Report[ToolRow]:
    return Report(rows=rows, machine={"cores": "2"}, versions={"grpcio": "1.<2>"})


def test_a_row_says_what_the_contract_lists() -> None:
    found = json.loads(json.dumps(a_row().to_json()))
    assert {
        "workload", "mode", "concurrency", "requests", "requests_per_s", "latency_ms", "queue_ms",
        "run_ms", "errors", "cpu_ms_per_call", "floor_cpu_ms_per_call", "rss_mib",
    } <= set(found)  # fmt: skip
    assert set(found["latency_ms"]) == {"min", "avg", "p50", "p90", "p99", "max"}
    assert found["latency_ms"]["p50"] == pytest.approx(24.0)
    assert found["requests"] == 15
    assert found["errors"] == 0
    assert found["isolation"] == "full"
    assert found["pss_mib_per_session"] == pytest.approx(2.0)
    parts = found["wire_ms"] + found["queue_ms"] + found["run_ms"]
    assert parts == pytest.approx(found["latency_ms"]["avg"])
    assert list(a_report(a_row()).to_json()) == ["rows", "machine", "versions"]


def test_a_loop_is_one_sample_and_a_burst_the_median_of_its_rounds() -> None:
    assert a_row(mode=Mode.BURST).ours.latency.max == pytest.approx(26.0)
    assert a_row(mode=Mode.CLOSED).ours.latency.max == pytest.approx(30.0)


def test_what_runs_elsewhere_has_no_memory() -> None:
    found = replace(a_row(), memory=None).to_json()
    assert found["rss_mib"] is None
    assert found["pss_mib_per_session"] is None


@pytest.mark.parametrize(
    ("points", "found"),
    [
        ([(16, 1000, 10), (64, 3000, 20), (256, 3050, 80), (1024, 3000, 330)], 64),
        ([(256, 3050, 80), (16, 1000, 10), (64, 3000, 20)], 64),
        ([(16, 1000, 10), (64, 3000, 20)], None),
        ([(16, 1000, 1000), (64, 1020, 1050)], None),
        ([(16, 1000, 10), (64, 900, 70)], 16),
        ([(16, 1000, 10)], None),
    ],
)
def test_the_knee(points: list[tuple[int, float, float]], found: int | None) -> None:
    assert knee(points) == found


def test_the_rank_sum_test_agrees_with_its_tables() -> None:
    # All of one group below all of the other: 2 of the C(10, 5) = 252 ways.
    assert rank_sum([1, 2, 3, 4, 5], [6, 7, 8, 9, 10]) == pytest.approx(2 / 252)
    assert rank_sum([6, 7, 8, 9, 10], [1, 2, 3, 4, 5]) == pytest.approx(2 / 252)
    assert rank_sum([1, 2, 3, 4, 6], [5, 7, 8, 9, 10]) == pytest.approx(4 / 252)
    assert rank_sum([1.0] * 5, [1.0] * 5) == 1.0


@pytest.mark.parametrize(
    ("relative", "chance", "more", "verdict"),
    [
        (0.2, 0.008, True, Verdict.BETTER),
        (0.2, 0.008, False, Verdict.WORSE),
        (-0.2, 0.008, False, Verdict.BETTER),
        (-0.2, 0.3, False, Verdict.SAME),
        (0.02, 0.008, True, Verdict.SAME),
    ],
)
def test_a_verdict_needs_a_change_that_noise_does_not_make(
    relative: float, chance: float, more: bool, verdict: Verdict
) -> None:
    assert judge(relative, chance, more_is_better=more) is verdict


def test_a_slower_service_is_told_and_a_slower_machine_is_not(tmp_path: Path) -> None:
    file = tmp_path / "old.json"
    file.write_text(json.dumps(a_report(a_row()).to_json()), encoding="utf-8")
    old = read_report(file)

    def p50(report: Report[ToolRow]) -> Any:
        (found,) = [c for c in compare(old, report.to_json()) if c.figure == "p50_ms"]
        return found

    slower = p50(a_report(a_row(slower=3.0)))
    assert slower.verdict is Verdict.WORSE
    assert slower.relative == pytest.approx(0.5)
    assert "worse" in "\n".join(verdicts([slower]))
    # Service and floor three times as slow as before: another machine.
    rounds = [one_round(3 * (9.0 + n), 3 * (10.0 + n), 3 * (11.0 + n)) for n in range(5)]
    machine = p50(a_report(ToolRow.of("hello", Mode.BURST, 20, rounds, MEMORY)))
    assert machine.verdict is Verdict.SAME
    few = p50(a_report(ToolRow.of("hello", Mode.BURST, 20, rounds[:3], MEMORY)))
    assert few.verdict is Verdict.UNKNOWN
    assert compare(old, a_report(a_row(concurrency=21)).to_json()) == []


def test_a_plan_from_words() -> None:
    plan = parse_plan("hello,noop", "64,8", None, None, bursts=5, seconds=5.0)
    assert [workload.name for workload in plan.workloads] == ["hello", "noop"]
    assert plan.modes == (Mode.BURST, Mode.CLOSED)
    assert plan.concurrency == (8, 64)
    assert plan.tools == ("python", "noop")
    assert plan.sessions == 64
    assert plan.slices(WORKLOADS["hello"]) == (5, 1.0)
    assert plan.slices(WORKLOADS["sleep"]) == (1, 40.0)


def test_opening_needs_room_beside_what_is_held() -> None:
    def of(mode: str) -> SweepPlan:
        return parse_plan("hello", "100", mode, None, bursts=1, seconds=1.0)

    assert (of("opens").sessions, of("opens").holds) == (100, False)
    assert (of("opens,rush").sessions, of("opens,rush").holds) == (100, False)
    assert (of("opens,burst").sessions, of("opens,burst").holds) == (200, True)


@pytest.mark.parametrize("text", ["", "[]", '{"rows": [{"workload": "hello"}]}'])
def test_no_report_is_said_to_be_none(tmp_path: Path, text: str) -> None:
    file = tmp_path / "old.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match="no report of `bench tools --json`"):
        read_report(file)
    with pytest.raises(UsageError, match="No such file"):
        read_report(tmp_path / "other.json")


@pytest.mark.parametrize("name", WORKLOADS)
def test_calls_are_the_same_in_every_run(name: str) -> None:
    workload = WORKLOADS[name]
    calls = [workload.action(session, number) for session in range(20) for number in range(20)]
    again = [workload.action(session, number) for session in range(20) for number in range(20)]
    assert calls == again
    assert all(call.sleeps_s <= workload.longest_s for call in calls)


def test_the_page_fetches_nothing_and_escapes() -> None:
    changes = compare(a_report(a_row()).to_json(), a_report(a_row(slower=3.0)).to_json())
    report = a_report(a_row(), a_row(40), a_row(20, Mode.CLOSED), a_row(40, Mode.CLOSED))
    page = render(report, changes, published=True)
    told = words_of(page)
    assert "1.<2>" in told
    assert [b["kind"] for b in data_of(page)["blocks"]].count("charts") == 2
    for words in ("hello, closed", "What others measured", verltool.PAPER, "worse", "no knee"):
        assert words in told
