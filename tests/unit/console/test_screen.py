"""The view: what is known, in order, what is doubted, and the time left."""

from __future__ import annotations

import io

from rich.console import Console

from console.record.types import Evaluation, Step
from console.watch import doubts, pace
from console.watch.engine import EngineSays
from console.watch.screen import Screen, panel
from console.watch.status import Status


def step(number: int, **values: float) -> Step:
    return Step(step=number, values={"trajectories": 10.0, "masked": 0.0, **values})


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


def test_a_new_engine_counts_from_0() -> None:
    first, later = (EngineSays(state="", numbers={"tokens": t}, at=t / 100) for t in (100.0, 300.0))
    assert (later.rate(first, "tokens"), first.rate(later, "tokens")) == (100, None)


def test_a_log_has_each_doubt_once_as_long_as_it_lasts() -> None:
    out = io.StringIO()
    shown = Screen(Console(file=out, soft_wrap=True, highlight=False))
    every = [["30% of step 57 is masked"], ["31% of step 58 is masked", "a b"], [], ["a b"]]
    for found in every:
        shown.status.doubts = found
        shown._say_line()
    said = [text for text in out.getvalue().splitlines() if "warning" in text]
    assert said == ["  warning: 30% of step 57 is masked", "  warning: a b", "  warning: a b"]


def test_the_panel_shows_it_all_and_no_escape_of_a_stranger() -> None:
    suites = ("heldout-sampled", 0.55, 1.0), ("heldout-greedy", 0.6, 0.0), ("\x1b[2Jb", 0.5, 0.0)
    known = Status(
        stage="reinforcement learning", stage_at=100.0, before_s=500, step=57, steps=200,
        newest=[step(56, reward=0.5), step(57, reward=0.634, staleness_mean=0.4, masked=3)],
        evaluations={
            name: Evaluation(suite=name, step=50, n=8, reward=reward, temperature=heat)
            for name, reward, heat in suites
        },
        tokens_per_second=2310.4, calls_per_second=3.25, left_s=240, memory=3 << 30,
        doing={"engine": "running", "learner": "trains step 58"},
        doubts=["30% of step 57 is masked"],
    )  # fmt: skip
    out = io.StringIO()
    Console(file=out, width=100).print(panel(known, 400))
    for words in ("5 min, the run 13 min", "57/200", "heldout", "3.0 GiB", "trains step 58", "30%"):
        assert words in out.getvalue()
    assert "\x1b" not in out.getvalue()
