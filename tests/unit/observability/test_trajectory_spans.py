"""The spans of a record: who is whose child, when each was, and what both kinds of files hold."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.trajectory.trace_spans import spans_of
from engine.offline.inspect import jaeger
from tests.support.collectors import decoded, spans_by_service
from tests.support.records import FLOAT, TEXT
from toolwright import types as t
from toolwright.tracing import otlp
from toolwright.tracing.ids import call_span, root_span, trace_id
from toolwright.tracing.spans import Link, Span

RUN = "0123456789abcdef"
MS = 1_000_000
CLOCK = 1_700_000_000
VERSION = t.WeightVersion(lineage="a", step=3)


def written(turn: int, tokens: int) -> t.Segment:
    return t.Segment(
        author=t.Author.MODEL,
        token_ids=t.ids(range(tokens)),
        turn=turn,
        logprobs=t.floats([0.0] * tokens),
        weight_version=VERSION,
    )


TRAJECTORY = t.Trajectory(
    id="g0000012-3",
    group_id="g0000012",
    task=t.Task(id="sum"),
    sequences=(t.Sequence(id="g0000012-3.0", segments=(written(0, 5), written(1, 2))),),
    status=t.Status.COMPLETED,
    stop_reason=t.StopReason.ANSWERED,
    reward=0.5,
    calls=(
        t.CallRecord(
            call_id="g0000012-3/b1r0a0/0/0",
            turn=0,
            index=0,
            tool="python",
            action="",
            outcome=t.CallOutcome(
                observation="", valid=True, queued_s=0.010, run_s=0.030, error=t.ToolErrorKind.NONE
            ),
            timings=t.CallTimings(
                stop_read_ns=1300 * MS, dispatched_ns=1301 * MS, result_ns=1351 * MS
            ),
        ),
    ),
    timings=t.TrajectoryTimings(
        wall_s=0.9, generate_s=0.6, tool_s=0.06, reward_s=0.2, open_s=0.1, clock_s=CLOCK
    ),
    action_timings=(
        t.ActionTimings(turn=0, asked_ns=1000 * MS, first_ns=1050 * MS, acted_ns=1300 * MS),
        t.ActionTimings(turn=1, asked_ns=1360 * MS, first_ns=1400 * MS, acted_ns=1660 * MS),
    ),
)

STAMPS = st.integers(0, 2**62)
timed = st.builds(
    t.CallRecord,
    call_id=TEXT.map("g0000012-3/b1r0a0/{}/0".format),
    turn=st.integers(0, 3),
    index=st.just(0),
    tool=TEXT,
    action=st.just(""),
    outcome=st.builds(
        t.CallOutcome,
        observation=st.just(""),
        valid=st.booleans(),
        error=st.sampled_from(t.ToolErrorKind),
        queued_s=FLOAT,
        run_s=FLOAT,
    ),
    timings=st.builds(t.CallTimings, stop_read_ns=STAMPS, dispatched_ns=STAMPS, result_ns=STAMPS),
)
trajectories = st.builds(
    replace,
    st.just(TRAJECTORY),
    reward=FLOAT,
    calls=st.lists(timed, max_size=3, unique_by=lambda call: call.call_id).map(tuple),
    timings=st.builds(
        t.TrajectoryTimings,
        wall_s=FLOAT, generate_s=FLOAT, tool_s=FLOAT, reward_s=FLOAT, open_s=FLOAT,
        clock_s=st.floats(0, 4e9),
    ),
    action_timings=st.lists(
        st.builds(
            t.ActionTimings,
            turn=st.integers(0, 3), asked_ns=STAMPS, acted_ns=STAMPS, first_ns=STAMPS,
        ),
        max_size=3,
    ).map(tuple),
)  # fmt: skip
"""Records with whatever stamps: of clocks that went backwards, of services that invent numbers."""


def told(spans: Sequence[Span]) -> list[tuple[str, int, int]]:
    """Names with their ends, milliseconds after the clock's zero."""
    return [
        (s.name, (s.start_ns - CLOCK * 10**9) // MS, (s.end_ns - CLOCK * 10**9) // MS)
        for s in spans
    ]


def test_a_trajectory_in_order() -> None:
    assert told(spans_of(RUN, TRAJECTORY)) == [
        ("trajectory", 900, 2000),
        ("open", 900, 1000),
        ("generate", 1000, 1300),
        ("generate", 1360, 1660),
        ("call python", 1300, 1351),
        ("queue", 1306, 1316),  # five of the ten milliseconds that nobody measured lie before it
        ("run", 1316, 1346),
        ("reward", 1800, 2000),
    ]


def test_ids_are_those_that_everybody_derives() -> None:
    root, *rest = spans_of(RUN, TRAJECTORY)
    assert {span.trace for span in (root, *rest)} == {trace_id(RUN, TRAJECTORY.id)}
    assert (root.id, root.parent) == (root_span(RUN, TRAJECTORY.id), "")
    call = call_span(RUN, TRAJECTORY.calls[0].call_id)
    parents = {span.name: span.parent for span in rest}
    assert parents.pop("queue") == parents.pop("run") == call
    assert set(parents.values()) == {root.id}
    assert next(span for span in rest if span.name == "call python").id == call


def test_a_failed_call_and_a_failed_attempt_say_so() -> None:
    call = TRAJECTORY.calls[0]
    timeout = replace(call.outcome, error=t.ToolErrorKind.TIMEOUT)
    failed = t.Event(kind="attempt_failed", turn=0, data={"error": "no sampler"})
    spans = spans_of(
        RUN, replace(TRAJECTORY, calls=(replace(call, outcome=timeout),), events=(failed,))
    )
    errors = {span.name: span.error for span in spans if span.error}
    assert errors == {"trajectory": "no sampler", "call python": "timeout"}


def test_a_record_of_an_older_engine_is_laid_out_by_its_calls() -> None:
    spans = spans_of(RUN, replace(TRAJECTORY, action_timings=()))
    generate = [span for span in spans if span.name == "generate"]
    assert told(generate) == [("generate", 700, 1300)]
    assert generate[0].attributes["toolwright.estimated"] is True


@settings(max_examples=60, deadline=None)
@given(trajectories)
def test_every_span_lies_within_its_parent(trajectory: t.Trajectory) -> None:
    spans = spans_of(RUN, trajectory)
    by_id = {span.id: span for span in spans}
    for span in spans:
        assert span.start_ns <= span.end_ns
        if span.parent:
            above = by_id[span.parent]
            assert above.start_ns <= span.start_ns and span.end_ns <= above.end_ns


@settings(max_examples=30, deadline=None)
@given(trajectories)
def test_otlp_knows_every_field(trajectory: t.Trajectory) -> None:
    """Opentelemetry's own contract parses it, and a text is as JSON has it."""
    spans = spans_of(RUN, trajectory)
    text = json.dumps(otlp.request(spans), allow_nan=False)
    arrived = spans_by_service([decoded(json.loads(text))])
    assert [(s.trace, s.id, s.parent, s.name, s.start_ns, s.end_ns) for s in spans] == [
        (a.trace_id.hex(), a.span_id.hex(), a.parent_span_id.hex(), a.name,
         a.start_time_unix_nano, a.end_time_unix_nano)
        for _, a in arrived
    ]  # fmt: skip
    assert {service for service, _ in arrived} == {"toolwright-engine"}


@settings(max_examples=30, deadline=None)
@given(trajectories)
def test_jaegers_file_has_jaegers_shape(trajectory: t.Trajectory) -> None:
    trace = json.loads(json.dumps(jaeger.trace(spans_of(RUN, trajectory)), allow_nan=False))
    by_id = {span["spanID"]: span for span in trace["spans"]}
    for span in trace["spans"]:
        assert span["traceID"] == trace["traceID"] == trace_id(RUN, trajectory.id)
        assert trace["processes"][span["processID"]]["serviceName"] == "toolwright-engine"
        assert type(span["startTime"]) is type(span["duration"]) is int and span["duration"] >= 0
        assert all(set(tag) == {"key", "type", "value"} for tag in span["tags"])
        for above in span["references"]:
            parent = by_id[above["spanID"]]
            assert (above["refType"], above["traceID"]) == ("CHILD_OF", trace["traceID"])
            assert parent["startTime"] <= span["startTime"]
            end, latest = (one["startTime"] + one["duration"] for one in (span, parent))
            assert end <= latest


def test_links_and_numbers_that_are_none() -> None:
    link = Link(trace=trace_id(RUN, "a"), span=root_span(RUN, "a"))
    span = replace(
        spans_of(RUN, TRAJECTORY)[0], attributes={"x": float("nan"), "y": True}, links=(link,)
    )
    ((_, arrived),) = spans_by_service([decoded(json.loads(json.dumps(otlp.request([span]))))])
    assert arrived.links[0].span_id.hex() == link.span
    assert arrived.attributes[0].value.double_value != arrived.attributes[0].value.double_value
    assert arrived.attributes[1].value.bool_value is True
    (shown,) = jaeger.trace([span])["spans"]
    assert shown["references"] == [
        {"refType": "FOLLOWS_FROM", "traceID": link.trace, "spanID": link.span}
    ]
