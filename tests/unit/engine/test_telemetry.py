"""What the engine tells: metrics for machines, a line for people, logs for both."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import structlog
from prometheus_client import CollectorRegistry

from engine.serving.telemetry.logs import log_to, sentence
from engine.serving.telemetry.metrics import Metrics
from engine.serving.telemetry.parts import PartMetrics
from engine.serving.telemetry.progress import EngineProgress
from toolwright.recipe.models.stop_rules import mask_reasons
from toolwright.types import (
    Author,
    CallOutcome,
    CallRecord,
    CallTimings,
    Event,
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
    outcome=CallOutcome(observation="o", valid=True),
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
    calls=(
        CALL,
        replace(
            CALL,
            tool="",
            outcome=CallOutcome(observation="", valid=True, error=ToolErrorKind.TIMEOUT),
            timings=CallTimings(),
        ),
    ),
    timings=TrajectoryTimings(wall_s=2.0, generate_s=1.5, tool_s=0.25),
)


def test_metrics_of_a_trajectory() -> None:
    metrics = Metrics()
    metrics.count(TRAJECTORY)

    def value(name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(name, labels)

    assert value("toolwright_engine_trajectories_total", lane="train", stop_reason="answered") == 1
    tokens = {
        a: value("toolwright_engine_tokens_total", author=a) for a in ("prompt", "model", "tool")
    }
    assert tokens == {"prompt": 3, "model": 2, "tool": 1}
    assert value("toolwright_engine_tool_calls_total", tool="python", error="none") == 1
    assert value("toolwright_engine_tool_calls_total", tool="unknown", error="timeout") == 1
    assert value("toolwright_engine_trajectory_seconds_sum", part="generate") == 1.5
    assert value("toolwright_engine_reward_sum") == 0.5
    metrics.count(replace(TRAJECTORY, reward=-1.0))
    assert (value("toolwright_engine_reward_count"), value("toolwright_engine_reward_sum")) == (
        2,
        -0.5,
    )
    assert value("toolwright_engine_reward_mean") == -0.25
    assert value("toolwright_engine_masked_trajectories_total", reason="reward") is None
    # Only calls that went out count; each took 0.4 ms.
    assert value("toolwright_engine_dispatch_seconds_count") == 2
    assert value("toolwright_engine_dispatch_seconds_sum") == pytest.approx(0.0008)


def test_two_engines_in_one_process_have_metrics_of_their_own() -> None:
    one, other = Metrics(), Metrics()
    one.count(TRAJECTORY)
    assert other.registry.get_sample_value("toolwright_engine_reward_count") == 0


def reasons_of(one: Trajectory) -> tuple[str, ...]:
    errored = one.status is Status.ERRORED
    return mask_reasons(masked=one.masked, errored=errored, events=one.events)


def test_a_masked_trajectory_counts_under_every_reason_that_masked_it() -> None:
    masked = replace(TRAJECTORY, masked=True)
    rules = Event(
        kind="stop_rules", turn=0, data={"rules": ["overlong", "void"], "masked": True, "reward": 0}
    )
    kept = Event(kind="stop_rules", turn=0, data={"rules": ["max_turns"], "masked": False})
    failed = Event(kind="reward_failed", turn=0)
    assert reasons_of(TRAJECTORY) == ()
    assert reasons_of(replace(TRAJECTORY, events=(rules,))) == ()
    assert reasons_of(replace(masked, events=(kept, rules))) == ("overlong", "void")
    assert reasons_of(replace(masked, events=(failed, rules))) == (
        "reward_failed", "overlong", "void",
    )  # fmt: skip
    assert reasons_of(masked) == ("reward",)
    assert reasons_of(replace(masked, status=Status.ERRORED)) == ("infrastructure",)
    metrics = Metrics()
    metrics.count(replace(masked, events=(rules,)))
    assert (
        metrics.registry.get_sample_value(
            "toolwright_engine_masked_trajectories_total", {"reason": "void"}
        )
        == 1
    )


@dataclass(frozen=True, kw_only=True)
class Service:
    open_sessions: int = 0
    calls_in_flight: int = 0
    opens_waiting: int = 0
    retries: Mapping[str, int] = field(default_factory=dict)
    failures: Mapping[str, int] = field(default_factory=dict)
    seconds_away: float = 0.0


def test_metrics_follow_what_the_parts_count() -> None:
    registry = CollectorRegistry()
    parts = PartMetrics(registry)
    sampler: dict[str, Any] = {
        "up": False, "why": "refused", "in_flight": 2, "queued": 40, "received": 7,
        "seconds_a_token": None, "failures": {"silent": 1},
    }  # fmt: skip

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, labels)

    assert parts.samplers({"a": sampler, "b": {**sampler, "up": True, "received": 5}}) == 12
    again = {**sampler, "received": 9, "seconds_a_token": 0.02, "failures": {"silent": 4}}
    assert parts.samplers({"a": again}) == 9
    assert value("toolwright_engine_sampler_up", sampler="a") == 0
    assert value("toolwright_engine_sampler_up", sampler="b") == 1
    assert value("toolwright_engine_sampler_tokens_total", sampler="a") == 9
    assert value("toolwright_engine_sampler_failures_total", sampler="a", reason="silent") == 4
    assert value("toolwright_engine_sampler_seconds_a_token", sampler="a") == 0.02
    assert value("toolwright_engine_sampler_seconds_a_token", sampler="b") is None
    for away in (1.5, 4.0):
        parts.tools({"python": Service(opens_waiting=3, retries={"full": 2}, seconds_away=away)})
    assert value("toolwright_engine_tool_away_seconds_total", service="python") == 4
    assert value("toolwright_engine_tool_opens_waiting", service="python") == 3
    assert value("toolwright_engine_tool_retries_total", service="python", reason="full") == 2
    parts.attempts({"session_lost": 2})
    parts.groups(passed_over=3, dropped=1, turned_away=7, old_tokens=64)
    parts.journal(full=True, backlog=5, commit_s=0.25, free=1 << 30)
    assert value("toolwright_engine_disk_free_bytes") == 1 << 30
    assert value("toolwright_engine_attempts_failed_total", reason="session_lost") == 2
    assert value("toolwright_engine_tasks_passed_over") == 3
    assert value("toolwright_engine_turned_away_groups") == 7
    assert value("toolwright_engine_old_tokens_total") == 64
    assert (
        value("toolwright_engine_journal_full"),
        value("toolwright_engine_journal_backlog"),
    ) == (1, 5)
    assert value("toolwright_engine_journal_commit_seconds") == 0.25


def test_a_total_that_begins_again_is_no_error() -> None:
    registry = CollectorRegistry()
    parts = PartMetrics(registry)
    for count in (5, 2, 3):
        parts.attempts({"x": count})
    assert (
        registry.get_sample_value("toolwright_engine_attempts_failed_total", {"reason": "x"}) == 6
    )


def test_the_line_for_people() -> None:
    out, now = io.StringIO(), 100.0
    progress = EngineProgress(7, out, clock=lambda: now)

    def line(tokens: int, evaluating: int = 0, turned_away: int = 0) -> str:
        return progress.line(
            state="running", step=3, running=4, evaluating=evaluating, waiting=2, tokens=tokens,
            reward=0.75, turned_away=turned_away,
        )  # fmt: skip

    now = 105.0
    first = line(50_000)
    for words in (
        "[     5 s] running", "version 3/7", "4 in flight", "2 groups waiting", "10,000 tokens/s",
        "reward 0.750",
    ):  # fmt: skip
        assert words in first
    assert "evaluating" not in first
    assert "turned away" not in first
    now = 110.0
    of_both = line(50_500, evaluating=5, turned_away=3)
    assert "100 tokens/s" in of_both
    assert "5 evaluating" in of_both
    assert "3 groups turned away" in of_both
    progress.show(first)
    assert out.getvalue() == first + "\n"


def test_a_warning_is_one_line_whatever_is_in_it() -> None:
    hostile = "first\nsecond\r\n" + "x" * 5000
    said = sentence(
        "warning", {"event": "sampler_set_aside", "level": "warning", "server": "s", "why": hostile}
    )
    assert said.startswith("warning: sampler set aside: server s, why first second xxx")
    assert said.endswith("x ...")
    assert len(said) < 400
    assert "\n" not in said
    fault = {"event": "unexpected", "exception": "Traceback:\n  file\nValueError: no such thing\n"}
    assert sentence("error", fault) == "error: unexpected: exception ValueError: no such thing"
    assert sentence("warning", {"event": "disk_full"}) == "warning: disk full"


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
    lines = [
        json.loads(x)
        for x in (tmp_path / "run" / "engine.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    assert [(x["event"], x["level"]) for x in lines] == [
        ("quiet", "info"), ("loud", "warning"), ("fault", "error"),
    ]  # fmt: skip
    assert lines[0]["step"] == 3
    assert "ZeroDivisionError" in lines[2]["exception"]
    said = capsys.readouterr().err
    assert "warning: loud: server s\n" in said
    assert "quiet" not in said


def test_output_on_a_full_disk_ends_nothing() -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as out:
        progress = EngineProgress(3, out=out)
        for _ in range(3):
            progress.show("engine: a line")
        with pytest.raises(OSError, match="No space"):
            print("a line", file=out, flush=True)
        with contextlib.suppress(OSError):
            out.close()
