"""Traces of real runs: what a collector gets of an engine and the tool service beneath it, what a
file says of the same trajectory, and what a collector that is no help costs."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span as OtlpSpan

from engine.errors import StartupError
from engine.offline.enums import TraceLayout
from engine.offline.inspect.trace import write_traces
from engine.serving.telemetry.traces import Traces
from tests.integration.engine.conftest import MakeWorld, World
from tests.support.collectors import FakeCollector, speaking
from tests.support.dialogue import ANSWER, by_turn
from tests.support.waiting import until
from toolwright.tracing.ids import call_span, root_span, trace_id
from toolwright.types import StopReason

pytestmark = pytest.mark.quick

RUN = {"steps": 1, "groups_per_step": 2, "group_size": 2}
SHOUT = """
from toolsvc import tool


@tool
def shout(text: str) -> str:
    "Louder."
    return text.upper()
"""
SAID = ["<shout>hello</shout>", ANSWER]


async def shouting(world: MakeWorld, folder: Path, traces: str) -> World:
    """A world whose one tool is that of a real tool service, which the engine starts."""
    (folder / "shout.py").write_text(SHOUT, encoding="utf-8")
    here = await world(run={**RUN, "traces": traces})
    here.tables["tools"] = {"tool": {"serve": ["shout.py"]}}
    here.sampler._script = by_turn(here.codec, SAID)
    return here


def within(inner: OtlpSpan, outer: OtlpSpan) -> bool:
    return (
        outer.start_time_unix_nano
        <= inner.start_time_unix_nano
        <= inner.end_time_unix_nano
        <= outer.end_time_unix_nano
    )


async def test_one_trajectory_is_one_trace_of_both(world: MakeWorld, tmp_path: Path) -> None:
    async with FakeCollector().serving() as collector:
        here = await shouting(world, tmp_path, collector.url)
        async with here.engine() as run:
            groups = await run.learner.lease(count=2)
            owner = run.engine.journal.owner
            assert (await run.learner.status()).detail["run"] == owner
        trajectories = [one for group in groups for one in group.members]
        await until(lambda: len(collector.spans) >= 4 * 10, "all spans")
        file = tmp_path / "traces.json"
        told = write_traces(tmp_path / "run", [trajectories[0].id], file, TraceLayout.JAEGER)
    assert {one.stop_reason for one in trajectories} == {StopReason.ANSWERED}
    spans = collector.spans
    assert len({(s.trace_id, s.span_id) for _, s in spans}) == len(spans) == 4 * 10
    for trajectory in trajectories:
        trace = trace_id(owner, trajectory.id)
        own = [(service, s) for service, s in spans if s.trace_id.hex() == trace]
        by_id = {s.span_id.hex(): s for _, s in own}
        root = by_id[root_span(owner, trajectory.id)]
        call = by_id[call_span(owner, trajectory.calls[0].call_id)]
        above = {s.name: by_id[s.parent_span_id.hex()].name for _, s in own if s.parent_span_id}
        assert above == {
            "open": "trajectory",
            "generate": "trajectory",
            "call shout": "trajectory",
            "reward": "trajectory",
            "delivery": "trajectory",
            "queue": "call shout",
            "run": "call shout",
            "toolsvc shout": "call shout",
        }
        assert not root.parent_span_id
        for service, span in own:
            beneath = span.name == "toolsvc shout"
            assert service == ("toolwright-toolsvc" if beneath else "toolwright-engine")
            # The service's clock is read by itself, and delivery comes when all is over.
            if span.parent_span_id and span.name not in ("toolsvc shout", "delivery"):
                assert within(span, by_id[span.parent_span_id.hex()]), span.name
        generated = sorted(
            (s for _, s in own if s.name == "generate"), key=lambda s: s.start_time_unix_nano
        )
        assert len(generated) == 2
        assert generated[0].end_time_unix_nano <= generated[1].start_time_unix_nano
        assert call.end_time_unix_nano <= generated[1].start_time_unix_nano
        (service_span,) = [s for _, s in own if s.name == "toolsvc shout"]
        assert within(service_span, call), "both clocks are this machine's"
        wall = root.end_time_unix_nano - root.start_time_unix_nano
        assert wall / 1e9 >= trajectory.timings.generate_s + trajectory.timings.open_s

    (shown,) = json.loads(file.read_text(encoding="utf-8"))["data"]
    assert told == f"1 trace in {file}; its id is {shown['traceID']}"
    assert shown["traceID"] == trace_id(owner, trajectories[0].id)
    sent = {
        s.span_id.hex(): s.start_time_unix_nano // 1000
        for service, s in spans
        if s.trace_id.hex() == shown["traceID"]
        and service == "toolwright-engine"
        and s.name != "delivery"
    }
    assert {span["spanID"]: span["startTime"] for span in shown["spans"]} == sent


async def test_a_collector_that_says_nothing_costs_no_rollout_anything(
    world: MakeWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes connections and never answers; the queue is full at once, and what is dropped is
    counted."""
    monkeypatch.setattr("toolwright.tracing.exporter.MOST_WAITING", 20)
    monkeypatch.setattr("toolwright.tracing.exporter.LAST_S", 0.2)
    monkeypatch.setattr("toolwright.tracing.exporter.DEADLINE_S", 0.2)
    held: list[socket.socket] = []
    with speaking(lambda connection: held.append(connection.dup())) as url:
        here = await shouting(world, tmp_path, url)
        async with here.engine() as run:
            groups = await run.learner.lease(count=2)
            registry = run.engine.metrics.registry
    trajectories = [one for group in groups for one in group.members]
    assert {one.stop_reason for one in trajectories} == {StopReason.ANSWERED}
    assert len(trajectories) == 4

    def counted(outcome: str) -> float | None:
        return registry.get_sample_value("toolwright_engine_spans_total", {"outcome": outcome})

    assert (counted("sent"), counted("refused")) == (0, 0)
    assert counted("dropped") == 4 * 9, "the engine's own: eight of a record, and a delivery"
    for connection in held:
        connection.close()


async def test_the_environment_may_name_it(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without that and a key of the recipe nothing is traced."""
    here = await world(run=RUN)
    async with here.engine() as run:
        await run.learner.lease()
        assert run.engine._traces is None
    async with FakeCollector().serving() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20secret")
        async with here.engine(run={"folder": "traced"}) as run:
            await run.learner.lease()
            assert isinstance(run.engine._traces, Traces)
    assert collector.headers[0]["authorization"] == "Bearer secret"
    assert {service for service, _ in collector.spans} == {"toolwright-engine"}


async def test_an_endpoint_that_is_none_is_told_at_the_start(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "127.0.0.1:4318")
    here = await world(run=RUN)
    with pytest.raises(StartupError, match="OTEL_EXPORTER_OTLP_ENDPOINT is not the address"):
        async with here.engine():
            pass
