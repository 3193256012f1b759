"""`engine trace` on recorded runs: which trajectories, in which shape, and what cannot be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.errors import StartupError
from engine.offline.enums import TraceLayout
from engine.offline.inspect.trace import write_traces
from tests.support.collectors import decoded, spans_by_service
from tests.support.recorded_runs import Recorded
from toolwright.tracing.ids import root_span, trace_id


@pytest.fixture
def run(tmp_path: Path) -> Path:
    recorded = Recorded(tmp_path / "run")
    groups = [[recorded.trajectory(f"g{g}-{m}") for m in (0, 1)] for g in (0, 1)]
    recorded.journal(*groups, owner="somebody")
    return recorded.folder


def test_all_that_is_held_is_a_trace_each(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "traces.json"
    assert write_traces(run, (), file, TraceLayout.JAEGER) == f"4 traces in {file}"
    traces = json.loads(file.read_text(encoding="utf-8"))["data"]
    names = ["g0-0", "g0-1", "g1-0", "g1-1"]
    assert [one["traceID"] for one in traces] == [trace_id("somebody", name) for name in names]
    assert traces[0]["spans"][0]["spanID"] == root_span("somebody", "g0-0")
    assert traces[0]["spans"][0]["operationName"] == "trajectory"


def test_named_ones_in_their_order_as_otlp(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "traces.json"
    write_traces(run, ("g1-1", "g0-0", "g1-1"), file, TraceLayout.OTLP)
    spans = spans_by_service([decoded(json.loads(file.read_text(encoding="utf-8")))])
    traces = dict.fromkeys(span.trace_id.hex() for _, span in spans)
    assert list(traces) == [trace_id("somebody", name) for name in ("g1-1", "g0-0")]


def test_a_run_that_holds_nothing_leaves_what_was_there(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path / "run")
    recorded.journal()
    file = tmp_path / "traces.json"
    file.write_text("before", encoding="utf-8")
    with pytest.raises(StartupError, match=r"engine\.history"):
        write_traces(recorded.folder, (), file, TraceLayout.JAEGER)
    assert file.read_text(encoding="utf-8") == "before"
