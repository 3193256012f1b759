"""The trace of a training step."""

from __future__ import annotations

from typing import Any

import pytest

from learner.errors import CollectorError
from learner.loop.traces import MOST_LINKS, step_spans, step_traces
from toolwright import types as t
from toolwright.tracing.ids import root_span, trace_id

RUN, NOW = "owner", 1_700_000_000_000_000_000
VERSION = t.WeightVersion(lineage="a", step=4)
LINE: dict[str, Any] = {
    "step_s": 10.0, "checkpoint_s": 1.0, "lease_s": 2.0, "train_s": 3.0, "export_s": 0.5,
    "publish_s": 1.5, "reward": 0.25, "loss": None,
}  # fmt: skip


def groups(size: int) -> list[t.Group]:
    members = tuple(
        t.Trajectory(
            id=f"g0-{index}",
            group_id="g0",
            task=t.Task(id="x"),
            sequences=(),
            status=t.Status.COMPLETED,
            stop_reason=t.StopReason.ANSWERED,
        )
        for index in range(size)
    )
    return [t.Group(id="g0", trajectories=members)]


def test_a_steps_phases_follow_each_other_within_it() -> None:
    step, *phases = step_spans(RUN, VERSION, groups(2), LINE, NOW)
    assert (step.start_ns, step.end_ns, step.parent) == (NOW - 10 * 10**9, NOW, "")
    assert [phase.name for phase in phases] == ["checkpoint", "lease", "train", "export", "publish"]
    assert {phase.parent for phase in phases} == {step.id}
    ends = [step.start_ns, *(phase.end_ns for phase in phases)]
    assert [phase.start_ns for phase in phases] == ends[:-1]
    assert ends[-1] == NOW - 2 * 10**9
    assert step.attributes["toolwright.reward"] == 0.25
    assert "toolwright.loss" not in step.attributes


def test_a_step_is_linked_to_what_it_trained_on_and_the_links_are_bounded() -> None:
    step, *_ = step_spans(RUN, VERSION, groups(MOST_LINKS + 5), LINE, NOW)
    assert len(step.links) == MOST_LINKS
    assert step.attributes["toolwright.trajectories"] == MOST_LINKS + 5
    assert (step.links[1].trace, step.links[1].span) == (
        trace_id(RUN, "g0-1"),
        root_span(RUN, "g0-1"),
    )


def test_where_nobody_wants_traces_the_engine_is_not_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)

    def unasked() -> str:
        raise AssertionError("asked")

    assert step_traces(unasked, "") is None
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "nowhere")
    with pytest.raises(CollectorError, match="OTEL_EXPORTER_OTLP_ENDPOINT is not the address"):
        step_traces(unasked, "")


def test_phases_that_are_longer_than_the_step_end_with_it() -> None:
    step, *phases = step_spans(RUN, VERSION, [], {"step_s": 1.0, "lease_s": 5.0}, NOW)
    assert [(phase.start_ns, phase.end_ns) for phase in phases] == [(step.start_ns, NOW)]
