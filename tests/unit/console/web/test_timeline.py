"""Where a step's time went: from stamps of records and lines of logs to bars, shares and load."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.web.index.index import Index
from console.web.index.marks import of_engine
from console.web.index.spans import times_of
from console.web.index.types import KINDS, Span, Times
from console.web.telling.tokens import Spellings
from console.web.timeline.fold import idle, lanes, load, painted, shares
from console.web.timeline.timeline import timeline
from console.web.timeline.types import Bar, Window
from tests.support.recorded_runs import Recorded
from toolwright import types as t
from toolwright.wire import trajectory_to_proto

S = 1_000_000_000
CLOCK = 1_800_000_000.0
BEGAN = CLOCK + 100.0
STAMPED = {
    "timings": t.TrajectoryTimings(wall_s=12.0, open_s=1.0, clock_s=CLOCK),
    "action_timings": (
        t.ActionTimings(turn=0, asked_ns=101 * S, first_ns=102 * S, acted_ns=105 * S),
        t.ActionTimings(turn=1, asked_ns=109 * S, acted_ns=111 * S),
    ),
    "calls": (
        t.CallRecord(
            call_id="g0-0/a/0/0", turn=0, index=0, tool="python", action="",
            outcome=t.CallOutcome(observation="", valid=True, tool="python", queued_s=1.0),
            timings=t.CallTimings(dispatched_ns=105 * S, result_ns=108 * S),
        ),
    ),
}  # fmt: skip
"""Asked after a second, first token after another; a second in the tool's queue; the engine's own
second before the second action, and one after it."""

spans = st.builds(
    lambda kind, start, length, tokens: Span(
        kind=kind, start=start, end=start + length, tokens=tokens
    ),
    st.sampled_from(KINDS),
    st.floats(0, 50),
    st.floats(0.01, 50),
    st.integers(0, 100),
)
bars = st.lists(
    st.builds(
        lambda began, spans: bar(*spans, began=began),
        st.floats(0, 100),
        st.lists(spans, max_size=5),
    ),
    max_size=5,
)


def bar(*spans: Span, began: float = 0.0, name: str = "g0-0", length: float = 0.0) -> Bar:
    last = max((span.end for span in spans), default=0.0)
    times = Times(began=began, length=max(length, last), spans=spans)
    return Bar(name=name, suite="training", step=0, reward=1.0, times=times)


def stamped(run: Recorded, name: str = "g0-0", **more: object) -> t.Trajectory:
    return run.trajectory(name, **{**STAMPED, **more})


def told(run: Recorded, tmp_path: Path) -> Path:
    """The index of the run as it is now."""
    index = Index(run.folder, tmp_path / "index.sqlite", Spellings(run.folder).decoder)
    while index.refresh():
        pass
    index.close()
    return index.file


def published(run: Recorded, *steps: tuple[int, float]) -> None:
    with (run.folder / "engine.jsonl").open("a", encoding="utf-8") as file:
        for step, at in steps:
            stamp = datetime.fromtimestamp(at, UTC).isoformat()
            line = {"event": "published", "version": f"ab.{step}", "timestamp": stamp}
            file.write(json.dumps(line) + "\n")


@pytest.fixture
def run(tmp_path: Path) -> Recorded:
    return Recorded(tmp_path / "run")


def test_stamps_of_a_record_are_spans_of_real_time(run: Recorded) -> None:
    times = times_of(trajectory_to_proto(stamped(run)))
    assert (times.began, times.length) == (BEGAN, 12.0)
    found = [(span.kind, span.start, span.end) for span in times.spans]
    assert found == [
        ("open", 0, 1), ("wait", 1, 2), ("generate", 2, 5), ("generate", 9, 11),
        ("queue", 5, 6), ("tool", 6, 8),
    ]  # fmt: skip
    wrote = [len(one.token_ids) for one in stamped(run).sequences[0].segments]
    assert [span.tokens for span in times.spans if span.tokens] == [wrote[1], wrote[3]]


def test_a_record_without_stamps_has_no_place_on_the_timeline(run: Recorded) -> None:
    assert times_of(trajectory_to_proto(run.trajectory())) is None


@pytest.mark.parametrize("clock", [float("nan"), float("inf"), -1.0, 1e300])
def test_a_clock_that_is_none_is_no_time(run: Recorded, clock: float) -> None:
    wrong = t.TrajectoryTimings(clock_s=clock)
    assert times_of(trajectory_to_proto(stamped(run, timings=wrong))) is None


def test_stamps_of_another_boot_cost_themselves_alone(run: Recorded) -> None:
    first, _ = STAMPED["action_timings"]
    later = t.ActionTimings(turn=1, asked_ns=3, first_ns=4, acted_ns=5)
    endless = t.ActionTimings(turn=1, asked_ns=200 * S, acted_ns=2**63)
    times = times_of(
        trajectory_to_proto(stamped(run, action_timings=(first, later, endless), calls=()))
    )
    assert times is not None
    assert [(span.kind, span.end) for span in times.spans] == [
        ("open", 1), ("wait", 2), ("generate", 5),
    ]  # fmt: skip


def test_who_writes_does_not_wait_for_the_call_that_runs_meanwhile() -> None:
    times = bar(
        Span(kind="generate", start=0, end=4), Span(kind="tool", start=2, end=6), length=7.0
    ).times
    assert painted(times) == [("generate", 0, 4), ("tool", 4, 6), ("rest", 6, 7)]


@given(bars)
def test_a_bar_is_painted_once_from_end_to_end(made: list[Bar]) -> None:
    for one in made:
        pieces = painted(one.times)
        edges = [0.0, *(end for _, _, end in pieces)]
        assert [start for _, start, _ in pieces] == edges[:-1]
        assert edges[-1] == one.times.length


@given(bars, st.floats(0, 80), st.floats(1, 80))
def test_shares_add_up_and_no_time_is_told_twice(
    made: list[Bar], start: float, length: float
) -> None:
    window = Window(start=start, end=start + length)
    found = shares(made, window)
    assert not found or sum(found.values()) == pytest.approx(1)
    assert -1e-9 <= idle(made, window) <= 1


def test_load_counts_requests_calls_and_tokens_of_each_part() -> None:
    writes = Span(kind="generate", start=5, end=15, tokens=100)
    made = [
        bar(Span(kind="wait", start=0, end=5), writes, Span(kind="tool", start=15, end=20)),
        bar(Span(kind="generate", start=0, end=10, tokens=20), name="g1-0"),
    ]
    found = load(made, Window(start=0, end=20), parts=2)
    assert found.requests == pytest.approx((2, 0.5))
    assert found.calls == pytest.approx((0, 0.5))
    assert found.tokens == pytest.approx((7, 5))


@given(st.lists(st.tuples(st.floats(0, 50), st.floats(0, 50)), max_size=20))
def test_bars_of_one_lane_do_not_cover_each_other(made: list[tuple[float, float]]) -> None:
    placed = sorted((start, start + length) for start, length in made)
    ends: dict[int, float] = {}
    for (start, end), lane in zip(placed, lanes(placed), strict=True):
        assert ends.get(lane, 0.0) <= start
        ends[lane] = end


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"event": "published", "version": "ab.3"},
        {"event": "published", "version": [3], "timestamp": "2026-01-01T00:00:00Z"},
        {"event": "evaluated", "suite": "s", "step": -3, "timestamp": "2026-01-01T00:00:00Z"},
        {"event": "serving", "timestamp": "2026-01-01T00:00:00Z"},
        {"event": "published", "version": "ab.3", "timestamp": "soon"},
    ],
)
def test_lines_of_other_things_are_no_marks(row: dict[str, object]) -> None:
    assert of_engine(row) is None


def test_a_step_lasts_from_its_publish_to_the_next(run: Recorded, tmp_path: Path) -> None:
    run.journal([stamped(run), stamped(run, "g0-1")])
    published(run, (3, BEGAN - 2), (4, BEGAN + 18))
    (run.folder / "learner.jsonl").write_text(
        '{"step": 4, "lease_s": 13, "train_s": 5}\n', encoding="utf-8"
    )
    found = timeline(told(run, tmp_path), None)
    assert (found["step"], found["steps"], found["ended"]) == (3, [3, 3], True)
    assert found["window"] == {"start": BEGAN - 2, "ms": 20_000}
    assert [(mark["step"], mark["at"]) for mark in found["published"]] == [(3, 0), (4, 20_000)]
    assert [(one["name"], one["from"], one["to"]) for one in found["phases"]] == [
        ("lease", 2_000, 15_000), ("train", 15_000, 20_000),
    ]  # fmt: skip
    assert [(one["name"], one["lane"]) for one in found["bars"]] == [("g0-0", 0), ("g0-1", 1)]
    assert found["bars"][0]["spans"][0] == ["open", 2_000, 3_000]
    assert found["shares"] == pytest.approx(
        {"generate": 5 / 12, "tool": 2 / 12, "rest": 2 / 12, "open": 1 / 12, "wait": 1 / 12,
         "queue": 1 / 12}
    )  # fmt: skip
    assert found["idle"] == pytest.approx(8 / 20)


def test_a_run_without_stamps_has_no_timeline(run: Recorded, tmp_path: Path) -> None:
    run.journal([run.trajectory()])
    assert timeline(told(run, tmp_path), None) == {"step": None, "steps": None, "rows": 1}


def test_without_publishes_a_step_lasts_as_long_as_its_trajectories(
    run: Recorded, tmp_path: Path
) -> None:
    run.journal([stamped(run)])
    found = timeline(told(run, tmp_path), 99)
    assert (found["step"], found["ended"]) == (3, False)
    assert found["window"] == {"start": BEGAN, "ms": 12_000}
