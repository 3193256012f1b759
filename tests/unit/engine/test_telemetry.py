"""What the engine tells: metrics for machines, a line for people, logs for both."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
import structlog

from engine.telemetry.telemetry import Metrics, Progress, log_to
from toolwright.types import (
    Author,
    CallRecord,
    CallTimings,
    Segment,
    Sequence,
    Status,
    StopReason,
    Task,
    ToolErrorKind,
    Trajectory,
    TrajectoryTimings,
)

CALL = CallRecord(
    call_id="c",
    turn=0,
    index=0,
    tool="python",
    action="a",
    observation="o",
    valid=True,
    timings=CallTimings(stop_read_ns=1_000_000, dispatched_ns=1_400_000, result_ns=9_000_000),
)
TRAJECTORY = Trajectory(
    id="a",
    group_id="g",
    task=Task(id="q"),
    sequences=(
        Sequence(
            id="s",
            segments=(
                Segment(author=Author.PROMPT, token_ids=(1, 2, 3)),
                Segment(author=Author.MODEL, token_ids=(4, 5), logprobs=(0.0, 0.0)),
                Segment(author=Author.TOOL, token_ids=(6,)),
            ),
        ),
    ),
    status=Status.COMPLETED,
    stop_reason=StopReason.ANSWERED,
    reward=0.5,
    calls=(CALL, replace(CALL, tool="", error=ToolErrorKind.TIMEOUT, timings=CallTimings())),
    timings=TrajectoryTimings(wall_s=2.0, generate_s=1.5, tool_s=0.25),
)


def test_metrics_of_a_trajectory() -> None:
    metrics = Metrics()
    metrics.count(TRAJECTORY)

    def value(name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(name, labels)

    assert value("engine_trajectories_total", lane="train", stop_reason="answered") == 1
    tokens = {a: value("engine_tokens_total", author=a) for a in ("prompt", "model", "tool")}
    assert tokens == {"prompt": 3, "model": 2, "tool": 1}
    assert value("engine_tool_calls_total", tool="python", error="none") == 1
    assert value("engine_tool_calls_total", tool="unknown", error="timeout") == 1
    assert value("engine_trajectory_seconds_sum", part="generate") == 1.5
    assert value("engine_reward_bucket", le="0.25") == 0
    assert value("engine_reward_bucket", le="0.5") == 1
    metrics.count(replace(TRAJECTORY, reward=-1.0))
    assert value("engine_reward_bucket", le="-1.0") == 1
    assert value("engine_reward_mean") == -0.25
    # Only calls that went out count; each took 0.4 ms.
    assert value("engine_dispatch_seconds_count") == 2
    assert value("engine_dispatch_seconds_sum") == pytest.approx(0.0008)


def test_two_engines_in_one_process_have_metrics_of_their_own() -> None:
    one, other = Metrics(), Metrics()
    one.count(TRAJECTORY)
    assert other.registry.get_sample_value("engine_reward_count") == 0


def test_the_line_for_people() -> None:
    out = io.StringIO()
    progress = Progress(7, out)
    progress.count(TRAJECTORY)
    line = progress.line(state="running", step=3, running=4, evaluating=0, waiting=2, reward=0.75)
    assert "running" in line
    assert "version 3/7" in line
    assert "4 in flight" in line
    assert "2 groups waiting" in line
    assert "reward 0.750" in line
    assert "evaluating" not in line
    of_both = progress.line(state="x", step=3, running=4, evaluating=5, waiting=2, reward=0.0)
    assert "5 evaluating" in of_both
    progress.show(line)
    assert out.getvalue() == line + "\n"


def test_logs_are_json_and_warnings_reach_people(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = structlog.get_config()
    try:
        log_to(tmp_path / "run" / "engine.jsonl")
        log = structlog.get_logger("test")
        log.debug("not this")
        log.info("quiet", step=3)
        log.warning("loud", server="s")
        try:
            1 / 0  # noqa: B018
        except ZeroDivisionError:
            log.exception("fault")
    finally:
        structlog.configure(**before)
    lines = [json.loads(x) for x in (tmp_path / "run" / "engine.jsonl").read_text().splitlines()]
    assert [(x["event"], x["level"]) for x in lines] == [
        ("quiet", "info"), ("loud", "warning"), ("fault", "error"),
    ]  # fmt: skip
    assert lines[0]["step"] == 3
    assert "ZeroDivisionError" in lines[2]["exception"]
    said = capsys.readouterr().err
    assert "warning: loud server=s" in said
    assert "quiet" not in said
