"""The view: what is known, in order, what is doubted, and the time left."""

from __future__ import annotations

import asyncio
import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from console.record.types import Evaluation, Step
from console.watch import doubts, engine, pace, screen
from console.watch.engine import EngineSays
from console.watch.screen import Screen, panel
from console.watch.status import Status, duration, fields, line, spark, success


def step(number: int, **values: float) -> Step:
    return Step(step=number, values={"trajectories": 10.0, "masked": 0.0, **values})


def measured(suite: str, reward: float, heat: float = 1.0) -> Evaluation:
    return Evaluation(suite=suite, step=50, n=8, reward=reward, temperature=heat)


def known() -> Status:
    suites = ("heldout-sampled", 0.55, 1.0), ("heldout-greedy", 0.6, 0.0), ("\x1b[2Jb", 0.5, 0.0)
    return Status(
        stage="reinforcement learning",
        step=57,
        steps=200,
        newest=[step(56, reward=0.5), step(57, reward=0.634, staleness_mean=0.4, masked=3)],
        evaluations={name: measured(name, reward, heat) for name, reward, heat in suites},
        tokens_per_second=2310.4,
        calls_per_second=3.25,
        doing={"engine": "running", "learner": "trains step 58"},
        doubts=["30% of step 57 is masked"],
        left_s=240,
        memory=3 << 30,
    )


def test_a_line_of_a_log_is_short() -> None:
    assert line(known(), 123.4) == (
        "[  123 s] reinforcement learning, step 57/200, reward 0.63, "
        "heldout sampled 0.55 (step 50), greedy 0.60 (step 50), left about 4 min"
    )
    long = Status(stage="x" * 500, step=1, steps=2)
    assert len(line(long, 1.0)) == 160


def test_all_that_is_asked_for_is_among_the_fields() -> None:
    names = [name for name, _ in fields(known())]
    assert names == [
        "step", "reward", "heldout", "\ufffd[2Jb", "tokens/s", "calls/s", "staleness", "masked",
        "memory", "left",
    ]  # fmt: skip


def test_a_log_has_each_doubt_once_as_long_as_it_lasts() -> None:
    out = io.StringIO()
    shown = Screen(Console(file=out, soft_wrap=True, highlight=False))
    every = [["30% of step 57 is masked"], ["31% of step 58 is masked", "a b"], [], ["a b"]]
    for found in every:
        shown.status.doubts = found
        shown._say_line()
    said = [text for text in out.getvalue().splitlines() if "doubt" in text]
    assert said == ["  doubt: 30% of step 57 is masked", "  doubt: a b", "  doubt: a b"]


def test_unknown_is_left_out() -> None:
    assert line(Status(), 0.2) == "[    0 s] starting"


def test_many_suites_are_counted() -> None:
    status = Status(evaluations={f"s{n}": measured(f"s{n}", 0.5) for n in range(9)})
    assert success(status)[-1] == ("", "and 5 other suites")
    assert line(status, 0).endswith("s0 sampled 0.50 (step 50)")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"), (89, "89 s"), (100, "2 min"), (5340, "89 min"), (6000, "1 h 40 min"),
        (49 * 3600, "2 d 1 h"),
    ],
)  # fmt: skip
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_spark() -> None:
    assert spark([0, 0.5, 1.0]) == "▁▅█"
    assert spark([-1, 0, 1]) == "▁▅█"
    assert spark([0, 40]) == "▁█"
    assert spark([]) == ""


def test_the_panel_shows_it_all_and_no_escape_of_a_stranger() -> None:
    out = io.StringIO()
    Console(file=out, width=100).print(panel(replace(known(), stage_at=100.0, before_s=500), 400))
    text = out.getvalue()
    for words in (
        "learning · 5 min, the run 13 min",
        "57/200",
        "▅▆",
        "heldout",
        "3.0 GiB",
        "trains step 58",
        "30% of step 57",
        "4 min",
    ):
        assert words in text
    assert "\x1b" not in text


def test_the_pace_is_the_learners() -> None:
    steps = [step(n, step_s=seconds) for n, seconds in ((1, 100.0), (2, 10.0), (3, 20.0))]
    left = pace.of_steps(steps, last=10, since_s=5.0, afterwards_s=30.0)
    assert left == 15.0 * 7 - 5 + 30  # the first step waits for what starts
    assert pace.of_steps(steps[:1], last=2, since_s=0.0, afterwards_s=0.0) is None
    assert pace.of_steps(steps[:1], last=1, since_s=1.0, afterwards_s=5.0) == 4.0
    assert pace.of_steps([], last=2, since_s=0.0, afterwards_s=0.0) is None
    assert pace.of_steps([step(1)], last=2, since_s=0.0, afterwards_s=0.0) is None
    # A step that takes very long takes no more off than itself.
    assert pace.of_steps(steps, last=4, since_s=500.0, afterwards_s=1.0) == 1.0
    assert pace.of_steps(steps, last=3, since_s=10.0, afterwards_s=30.0) == 20.0


def test_before_the_second_step_the_batches_tell() -> None:
    def guess(accepted: int, elapsed: float, made: int = 0) -> float | None:
        return pace.of_first_batches(
            accepted=accepted, batch=32, elapsed_s=elapsed, made=made, steps=10, afterwards_s=5.0
        )

    assert guess(0, 60.0) is None
    assert guess(8, 1.0) is None
    assert guess(8, 60.0) == 10 * 240 + 5
    assert guess(48, 60.0, made=1) == 9 * 40 + 5
    assert guess(64, 60.0) == 10 * 60 + 5  # it trains, for nobody knows how long


def test_no_signal_is_said_from_the_second_step_on_with_the_learners_reason() -> None:
    def without(number: int) -> Step:
        values = {"worthless_steps": float(number), "trajectories": 8.0, "masked": 0.0}
        return Step(step=number, values=values, worthless="all rewards are 0")

    good = step(1, worthless_steps=0)
    assert doubts.of_steps([good, without(2)]) == []
    assert doubts.of_steps([good, without(2), without(3)]) == [
        "no signal since step 2: all rewards are 0"
    ]
    assert doubts.of_steps([good, without(2), without(3), step(4, worthless_steps=0)]) == []


def test_masks_gaps_and_broken_updates_are_doubted() -> None:
    values = {"masked": 3.0, "stop/session_lost": 3.0, "stop/answered": 7.0, "gap_mean": 0.2}
    found = doubts.of_steps([step(5, nonfinite_updates=1, **values)])
    assert found == [
        "30% of step 5 is masked (stops: answered 7, session_lost 3)",
        "sampler and learner differ: mean |log-prob difference| 0.2 at step 5",
        "1 updates of step 5 had no finite gradient",
    ]
    assert doubts.of_steps([step(5, masked=2, gap_mean=0.01)]) == doubts.of_steps([]) == []
    assert len(doubts.of_engine("full", {"fruitless": "gave up", "sampler_away": "refused"})) == 3


def says(state: str = "running", **more: Any) -> EngineSays:
    return EngineSays(state=state, **more)


def test_what_each_process_does() -> None:
    def doing(one: EngineSays | None) -> dict[str, str]:
        return engine.doing(one, batch=32, steps=10)

    assert doing(None) == {"engine": "does not answer"}
    assert doing(says("starting"))["engine"].startswith("starting")
    assert "learner" not in doing(says("starting"))
    waits = doing(says(step=2, accepted=72, running=24))
    assert waits["learner"] == "waits for rollouts: 8 of 32"
    assert waits["engine"] == "running, 24 in flight"
    assert doing(says(step=2, accepted=96))["learner"] == "trains step 3"
    assert doing(says(step=2, accepted=0))["learner"] == "waits for rollouts: 0 of 32"
    assert doing(says("publishing", step=2, accepted=96))["learner"] == "publishes"
    assert "learner" not in doing(says(step=10, accepted=320))
    numbers = {
        "evaluation_rows": 96.0, "evaluated_rows": 30.0, "samplers": 2.0, "samplers_up": 1.0,
        "sampler_requests": 7.0, "tool_sessions": 5.0, "tool_calls_in_flight": 2.0,
    }  # fmt: skip
    whole = doing(says("evaluating", numbers=numbers))
    assert "30 of 96 evaluation rows" in whole["engine"]
    assert whole["samplers"] == "1 of 2 up, 7 requests"
    assert whole["tools"] == "5 sessions, 2 calls in flight"
    assert doing(says("publishing", numbers=numbers))["samplers"] == "paused, 7 requests"


def test_rates_are_those_of_one_engine() -> None:
    first, later = (says(numbers={"tokens": t}, at=at) for t, at in ((100.0, 1.0), (300.0, 3.0)))
    assert later.rate(first, "tokens") == 100
    assert later.rate(first, "calls") is None
    assert later.rate(None, "tokens") is None
    assert later.rate(later, "tokens") is None
    assert first.rate(later, "tokens") is None  # a new engine counts from 0


async def test_a_log_file_gets_a_line_at_every_stage_and_every_while(
    monkeypatch: pytest.MonkeyPatch, until: Any
) -> None:
    monkeypatch.setattr(screen, "LIVE_S", 0.01)
    monkeypatch.setattr(screen, "LINE_S", 0.03)
    out = io.StringIO()
    shown = Screen(Console(file=out, soft_wrap=True, highlight=False))
    task = asyncio.create_task(shown.run())
    shown.stage("[bold]warm-up")
    await until(lambda: out.getvalue().count("[bold]warm-up") > 2)
    shown.status.stage = "training"
    await until(lambda: "training" in out.getvalue())
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert "\x1b" not in out.getvalue()


def test_a_new_stage_has_no_pace_of_the_last_one() -> None:
    shown = Screen(Console(file=io.StringIO()))
    shown.status.tokens_per_second, shown.status.left_s, shown.status.steps = 900.0, 60.0, 50
    shown.stage("stopping every process")
    assert [name for name, _ in fields(shown.status)] == ["step"]


async def test_a_terminal_gets_a_live_panel(monkeypatch: pytest.MonkeyPatch, until: Any) -> None:
    monkeypatch.setattr(screen, "LIVE_S", 0.01)
    out = io.StringIO()
    shown = Screen(Console(file=out, force_terminal=True, width=100))
    task = asyncio.create_task(shown.run())
    shown.stage("training")
    shown.status.newest = [step(1, reward=0.1), step(2, reward=0.9)]
    await until(lambda: "▁█" in out.getvalue())
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_a_tool_that_fails_is_named_with_its_words() -> None:
    def called(number: int, share: float, said: str = "planet: RuntimeError: away") -> Step:
        return Step(step=number, values={"call_failed_fraction/planet": share}, call_error=said)

    assert doubts.of_steps([called(1, 1.0)]) == [
        "every call of `planet` failed at step 1: RuntimeError: away"
    ]
    fails = [called(1, 0.0), called(2, 1.0), called(3, 1.0)]
    since = "every call of `planet` failed since step 2: RuntimeError: away"
    assert doubts.of_steps(fails) == [since]
    # A policy that no longer calls it has not mended it.
    assert doubts.of_steps([*fails, step(4)]) == [since]
    assert doubts.of_steps([*fails, called(4, 0.6, "other: x")]) == [
        "60% of the calls of `planet` failed at step 4"
    ]
    assert doubts.of_steps([*fails, called(4, 0.5)]) == []
    many = {f"call_failed_fraction/t{n}": 1.0 for n in range(99)}
    assert len(doubts.of_steps([Step(step=1, values=many)])) == doubts.MOST_TOOLS


def test_no_line_steers_the_terminal() -> None:
    status = Status(doubts=["tool said \x1b[2J"], doing={"engine": "\x1b[2J"})
    assert "\x1b" not in line(status, 0)


def test_stages_add_up_to_the_age_of_the_run() -> None:
    status = Status()
    assert status.ages(5.0) is None
    status.enter("checking", 10.0)
    status.enter("learning", 13.0)
    assert status.ages(20.0) == (7.0, 10.0)
    assert status.ages(0.0) == (0.0, 3.0)  # a clock that was set back
