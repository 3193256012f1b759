"""What the engine reports: metrics for machines, logs for both, and the loop's lag."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import structlog
from prometheus_client import CollectorRegistry, generate_latest

from engine.serving.telemetry.lag import BOUNDS, LoopLag
from engine.serving.telemetry.logs import log_to, sentence
from engine.serving.telemetry.metrics import Metrics
from engine.serving.telemetry.parts import PartMetrics
from engine.serving.telemetry.progress import EngineProgress
from tests.support.finished_trajectories import observed, prompt, trajectory, wrote
from tests.support.waiting import blocks, passes
from toolwright.recipe.models.stop_rules import mask_reasons
from toolwright.types import (
    CallOutcome,
    CallRecord,
    CallTimings,
    Event,
    Status,
    ToolErrorKind,
    Trajectory,
    TrajectoryTimings,
)

CALL = CallRecord(
    call_id="c", turn=0, index=0, tool="python", action="a",
    outcome=CallOutcome(observation="o", valid=True),
    timings=CallTimings(stop_read_ns=1_000_000, dispatched_ns=1_400_000, result_ns=9_000_000),
)  # fmt: skip
LATE = replace(
    CALL, tool="", timings=CallTimings(),
    outcome=CallOutcome(observation="", valid=True, error=ToolErrorKind.TIMEOUT),
)  # fmt: skip
TRAJECTORY = trajectory(
    0, prompt(3), wrote(2), observed(1), reward=0.5, calls=(CALL, LATE),
    timings=TrajectoryTimings(wall_s=2.0, generate_s=1.5, tool_s=0.25),
)  # fmt: skip
PREFIX = "toolwright_engine_"


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(PREFIX + name, labels)


def test_metrics_of_a_trajectory() -> None:
    metrics = Metrics()
    metrics.count(TRAJECTORY)
    metrics.count(replace(TRAJECTORY, reward=-1.0))

    def of(name: str, **labels: str) -> float | None:
        return value(metrics.registry, name, **labels)

    assert of("trajectories_total", lane="train", stop_reason="answered") == 2
    tokens = [of("tokens_total", author=author) for author in ("prompt", "model", "tool")]
    assert tokens == [6, 4, 2]
    assert of("tool_calls_total", tool="python", error="none") == 2
    assert of("tool_calls_total", tool="unknown", error="timeout") == 2
    assert of("trajectory_seconds_sum", part="generate") == 3.0
    assert (of("reward_count"), of("reward_sum"), of("reward_mean")) == (2, -0.5, -0.25)
    assert of("masked_trajectories_total", reason="reward") is None
    # Only calls that went out count; each took 0.4 ms.
    assert of("dispatch_seconds_count") == 2
    assert of("dispatch_seconds_sum") == pytest.approx(0.0008)
    assert value(Metrics().registry, "reward_count") == 0, "another engine in this process"


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
    assert value(metrics.registry, "masked_trajectories_total", reason="void") == 1


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
    assert parts.samplers({"a": sampler, "b": {**sampler, "up": True, "received": 5}}) == 12
    again = {
        **sampler,
        "received": 9,
        "seconds_a_token": 0.02,
        "failures": {"silent": 4},
        "cache_use": 0.5,
    }
    assert parts.samplers({"a": again}) == 9
    for away in (1.5, 4.0):
        parts.tools({"python": Service(opens_waiting=3, retries={"full": 2}, seconds_away=away)})
    for count in (5, 2, 3):  # a total that begins again is no error
        parts.attempts({"session_lost": count})
    parts.concurrency(limit=9, waiting=2, lost=700, retractions=1)
    parts.groups(passed_over=3, dropped=1, turned_away=7, old_tokens=64)
    parts.journal(full=True, backlog=5, commit_s=0.25, commits=3, free=1 << 30)
    found = {
        (sample.name.removeprefix(PREFIX), *sample.labels.values()): sample.value
        for family in registry.collect()
        for sample in family.samples
    }
    expected = {
        ("sampler_up", "a"): 0,
        ("sampler_up", "b"): 1,
        ("sampler_tokens_total", "a"): 9,
        ("sampler_failures_total", "a", "silent"): 4,
        ("sampler_seconds_a_token", "a"): 0.02,
        ("sampler_cache_use", "a"): 0.5,
        ("limit",): 9,
        ("waiting_for_cache",): 2,
        ("cache_lost_tokens_total",): 700,
        ("sampler_retractions_total",): 1,
        ("tool_away_seconds_total", "python"): 4,
        ("tool_opens_waiting", "python"): 3,
        ("tool_retries_total", "python", "full"): 2,
        ("attempts_failed_total", "session_lost"): 6,
        ("tasks_passed_over",): 3,
        ("turned_away_groups",): 7,
        ("old_tokens_total",): 64,
        ("journal_full",): 1,
        ("journal_backlog",): 5,
        ("journal_commit_seconds",): 0.25,
        ("journal_commits_total",): 3,
        ("disk_free_bytes",): 1 << 30,
    }
    assert {name: found.get(name) for name in expected} == expected
    assert ("sampler_seconds_a_token", "b") not in found


def test_the_line_for_people() -> None:
    now = 100.0
    progress = EngineProgress(7, io.StringIO(), clock=lambda: now)
    told: dict[str, Any] = {
        "state": "running",
        "step": 3,
        "running": 4,
        "waiting": 2,
        "reward": 0.75,
    }
    now = 105.0
    first = progress.line(**told, evaluating=0, turned_away=0, tokens=50_000)
    assert "10,000 tokens/s" in first and "evaluating" not in first
    assert "4 in flight, 2 groups" in first
    now = 110.0
    both = progress.line(**told, evaluating=5, turned_away=3, tokens=50_500, limit=6, paused=1)
    assert "4 in flight of 6," in both and "1 waiting for cache" in both
    assert all(one in both for one in ("100 tokens/s", "5 evaluating", "3 groups discarded"))


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
    text = (tmp_path / "run" / "engine.jsonl").read_text(encoding="utf-8")
    lines = [json.loads(line) for line in text.splitlines()]

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


@pytest.mark.alone
async def test_a_blocked_loop_is_seen() -> None:
    registry = CollectorRegistry()
    lag = LoopLag(registry)
    task = asyncio.create_task(lag.run())
    await passes(0.02, "the loop is measured")
    blocks(0.1, "the loop stands still: the fault to be found")
    await passes(0.02, "the fault is seen")
    task.cancel()
    assert 0.08 <= lag.worst < 1.0
    assert "toolwright_engine_loop_lag_seconds_bucket" in generate_latest(registry).decode()


def test_a_reset_forgets_the_ramp_up_but_not_the_histogram() -> None:
    registry = CollectorRegistry()
    lag = LoopLag(registry)
    lag.observe(2.0)
    lag.reset()
    for _ in range(99):
        lag.observe(0.002)
    lag.observe(0.3)
    assert lag.worst == 0.3
    assert lag.p50 == pytest.approx(0.002, rel=0.25)
    assert lag.p99 == pytest.approx(0.002, rel=0.25)
    assert b"toolwright_engine_loop_lag_seconds_count 101.0" in generate_latest(registry)


def test_what_lies_beyond_the_last_bucket_is_the_last_bound() -> None:
    lag = LoopLag(CollectorRegistry())
    lag.observe(1e6)
    assert lag.p50 == lag.p99 == BOUNDS[-1]
    assert lag.worst == 1e6
