"""The verdict at its edges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from console.record.types import Evaluation, Step
from console.verdict import Score, Verdict, judge


def step(number: int, reward: float | None = 0.5, *, taught: bool = True, **more: Any) -> Step:
    worthless = more.pop("worthless", "")
    values = {"worthless_steps": 0.0 if taught else 1.0, "trajectories": 8.0, "masked": 0.0, **more}
    if reward is not None:
        values["reward"] = reward
    return Step(step=number, values=values, worthless=worthless)


def steps(rewards: Sequence[float | None], **more: Any) -> list[Step]:
    return [step(number, reward, **more) for number, reward in enumerate(rewards, 1)]


def measured(at: int, reward: float, n: int = 100, stderr: float | None = 0.05) -> Evaluation:
    return Evaluation(suite="heldout", step=at, n=n, reward=reward, stderr=stderr)


def verdict(*args: Any, **more: Any) -> Verdict:
    return judge(*args, **more).verdict


def test_one_step_says_nothing() -> None:
    assert verdict([step(1)]) is Verdict.TOO_EARLY
    assert verdict([step(1, 0.0, taught=False)], planned=50) is Verdict.TOO_EARLY
    assert verdict([step(1, 0.0, taught=False)]) is Verdict.TOO_EARLY
    # All of a run of one step.
    assert verdict([step(1, 0.0, taught=False)], planned=1) is Verdict.NOTHING


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        (0.2, 0.9, Verdict.ROSE),
        (0.9, 0.2, Verdict.FELL),
        (0.5, 0.5, Verdict.UNCHANGED),
        (0.50, 0.64, Verdict.UNCHANGED),  # 0.14 < 2 sqrt(2) 0.05
        (0.50, 0.65, Verdict.ROSE),
        (0.65, 0.50, Verdict.FELL),
        (-3.0, -1.0, Verdict.ROSE),
    ],
)
def test_a_suite_that_was_measured_twice_decides(
    before: float, after: float, found: Verdict
) -> None:
    judgement = judge(
        steps([0.5] * 40), [measured(0, before), measured(20, 0.99), measured(40, after)]
    )
    assert judgement.verdict is found
    assert judgement.by == "heldout"
    assert judgement.after == Score(mean=after, stderr=0.05)


@pytest.mark.parametrize(
    ("n", "found"), [(1, Verdict.UNCHANGED), (2, Verdict.ROSE), (100, Verdict.ROSE)]
)
def test_rewards_that_are_all_equal_are_no_certainty(n: int, found: Verdict) -> None:
    ends = [measured(0, 0.0, n, 0.0), measured(9, 1.0, n, None)]
    assert verdict(steps([0.5] * 9), ends) is found


def test_one_evaluation_is_none_and_the_reward_decides() -> None:
    rising = [n / 40 for n in range(40)]
    judgement = judge(steps(rising), [measured(0, 0.9)])
    assert (judgement.verdict, judgement.by) == (Verdict.ROSE, "")
    assert verdict(steps(list(reversed(rising)))) is Verdict.FELL
    assert verdict(steps([0.5, 0.6] * 20)) is Verdict.UNCHANGED
    assert verdict(steps([0.5] * 40)) is Verdict.UNCHANGED
    assert verdict(steps(rising[:9])) is Verdict.TOO_EARLY
    assert verdict(steps([*rising[:5], *[None] * 30])) is Verdict.TOO_EARLY


@pytest.mark.parametrize(
    ("rewards", "more", "reason"),
    [
        ([1.0] * 3, {}, "solved already"),
        ([0.0] * 2, {}, "every reward is 0"),
        ([None] * 3, {"masked": 8.0, "stop/session_lost": 7.0}, "masked (session_lost most often)"),
        ([0.2, 0.4], {"worthless": "all equal"}, "all equal"),
    ],
)
def test_what_kept_it_from_learning_is_named(
    rewards: list[float | None], more: dict[str, Any], reason: str
) -> None:
    found = judge(steps(rewards, taught=False, **more))
    assert found.verdict is Verdict.NOTHING and reason in found.why


def test_evaluations_of_a_run_that_could_not_learn_prove_nothing() -> None:
    ends = [measured(0, 0.1), measured(2, 0.9)]
    assert verdict(steps([0.0, 0.0], taught=False), ends) is Verdict.NOTHING


def test_one_step_with_a_signal_is_enough() -> None:
    rows = [*steps([0.0] * 5, taught=False), step(6, 0.1)]
    assert verdict(rows) is Verdict.TOO_EARLY


def test_lines_of_a_learner_that_does_not_tell_are_not_held_against_it() -> None:
    old = [Step(step=n, values={"reward": 0.0}) for n in (1, 2, 3)]
    assert verdict(old) is Verdict.TOO_EARLY
    told = [Step(step=n, values={"reward": 0.0, "groups_with_signal": 0.0}) for n in (1, 2, 3)]
    assert verdict(told) is Verdict.NOTHING


def test_a_run_that_ended_without_a_signal_is_not_praised() -> None:
    ends = [measured(0, 0.1), measured(12, 0.9)]
    rows = [*steps([0.2] * 9), *(step(n, 0.0, taught=False, worthless="equal") for n in (10, 11))]
    found = judge(rows, ends, ended=4)
    assert (found.verdict, found.since) == (Verdict.NOTHING, 10)
    assert found.why == (
        "The last 2 of 11 steps taught nothing: the figures are no success. "
        "The learner said at the end: equal."
    )
    assert verdict(rows, ends, ended=0) is Verdict.NOTHING
    assert verdict(rows, ends) is Verdict.ROSE  # it goes on
    assert verdict(rows[:-1], ends, ended=0) is Verdict.ROSE  # bad luck of one step
    assert verdict([*steps([0.2] * 40), *rows[-2:]], ends, ended=0) is Verdict.ROSE
    assert verdict([*rows, step(12)], ends, ended=4) is Verdict.ROSE


def test_a_run_that_was_to_make_no_step_is_not_said_to_be_early_for_lack_of_one() -> None:
    alone = judge([], [measured(0, 0.4)], planned=0, ended=0)
    assert alone.verdict is Verdict.TOO_EARLY and "run.steps is 0" in alone.why
    assert judge([], planned=5).why == "No step has been made."


def test_solved_tasks_are_a_success_although_they_teach_nothing_more() -> None:
    rows = [*steps([0.2] * 9), *(step(n, 1.0, taught=False) for n in range(10, 20))]
    assert verdict(rows, [measured(0, 0.1), measured(19, 0.9)], ended=4) is Verdict.ROSE
