"""The progress line: what is known, in order, and the time left."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from bench.demo import progress
from bench.demo.follow import follow_training
from bench.demo.progress import Screen, Status, duration, line, seconds_left, spark
from tests.support.waiting import passes


def test_all_that_is_asked_for_is_in_the_line() -> None:
    status = Status(
        stage="seed 1", step=57, steps=200, reward=0.634, success=0.55, success_step=50,
        tokens_per_second=2310.4, staleness=0.4, left_s=240, memory=3 << 30,
    )  # fmt: skip
    assert line(status, 123.4) == (
        "[  123 s] seed 1, step 57/200, reward 0.63, success 0.55 (held out, step 50), "
        "tokens/s 2,310, staleness 0.40, memory 3.0 GiB, left about 4 min"
    )


def test_unknown_is_left_out() -> None:
    assert line(Status(stage="starting"), 0.2) == "[    0 s] starting"


def test_seconds_left() -> None:
    assert seconds_left([], 10, 5) is None
    assert seconds_left([1.0], 10, 5) is None
    assert seconds_left([0.0, 2.0, 4.0], 10, 5) == 25
    many = [float(n) for n in range(100)]
    assert seconds_left([*many, 102.0], 1, 0) == pytest.approx((102 - 81) / 19)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (89, "89 s"), (100, "2 min"), (3900, "65 min"), (6000, "1 h 40 min")],
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_spark() -> None:
    assert spark([0, 0.5, 1.0, 2.0, -1]) == "▁▅██▁"


async def test_follows_files_that_grow(tmp_path: Path, until: Any) -> None:
    status = Status(stage="x", steps=10)
    task = asyncio.create_task(
        follow_training(tmp_path, status, runs_after=1, warm_ups_after_s=40.0)
    )
    await passes(0.05, "there is nothing to follow yet")
    steps = tmp_path / "learner.jsonl"
    row = {"step": 1, "reward": 0.25, "staleness_mean": 0.5, "version": "a.1"}
    row |= {"response_length": 20, "trajectories": 10, "step_s": 2.0, "skipped_update": False}
    steps.write_text(json.dumps(row) + '\n{"step": 2, "rew')
    (tmp_path / "evaluations.jsonl").write_text(
        json.dumps({"suite": "curve-sampled", "step": 0, "n": 4, "reward": 0.2, "stderr": 0.1,
                    "seconds": 3.0}) + "\n"
    )  # fmt: skip
    await until(lambda: status.step == 1 and status.success is not None)
    assert (status.reward, status.success, status.staleness) == (0.25, 0.2, 0.5)
    assert status.tokens_per_second == 100
    with steps.open("a") as out:
        out.write('ard": 0.75}\n')
    await until(lambda: status.step == 2)
    assert status.reward == 0.75
    await until(lambda: status.left_s is not None)
    # The warm-up to come, this run's last evaluation, the next run's first and last, and steps.
    assert (status.left_s or 0.0) > 40.0 + 3 * 3.0
    task.cancel()


async def test_a_log_file_gets_plain_lines(monkeypatch: pytest.MonkeyPatch, until: Any) -> None:
    monkeypatch.setattr(progress, "LINE_S", 0.01)
    out = io.StringIO()
    screen = Screen(Console(file=out, soft_wrap=True, highlight=False))
    task = asyncio.create_task(screen.run())
    screen.stage("seed 1", steps=3)
    screen.status.step = 2
    await until(lambda: "step 2/3" in out.getvalue())
    task.cancel()
    assert "\x1b" not in out.getvalue()


async def test_a_terminal_gets_a_live_panel(monkeypatch: pytest.MonkeyPatch, until: Any) -> None:
    monkeypatch.setattr(progress, "LIVE_S", 0.01)
    out = io.StringIO()
    screen = Screen(Console(file=out, force_terminal=True, width=100))
    screen.stage("seed 1", steps=3)
    screen.status.recent = [0.1, 0.9]
    task = asyncio.create_task(screen.run())
    await until(lambda: "rewards" in out.getvalue())
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
