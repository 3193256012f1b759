"""What a submission is worth, and which stops make it 0 and leave the loss."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.core.rewards.stops import StopRules, stop_effect
from tests.support.recipes import Part
from tests.unit.verltool_swe.conftest import FOLDER, failed, ran, submitted
from toolwright.recipe import load_recipe
from toolwright.types import CallOutcome, Purpose, Status, StopReason, ToolErrorKind, Trajectory

SEEN = CallOutcome(observation="./pages.py", valid=True)
MASKED = {
    StopReason.TOOL_TIMEOUT,
    StopReason.TOOL_EXCEPTION,
    StopReason.TRAJECTORY_TIMEOUT,
    StopReason.MAX_RESPONSE_LENGTH,
    StopReason.MAX_MODEL_LENGTH,
    StopReason.MAX_ACTION_LENGTH,
    StopReason.MAX_TURNS,
}
BROKEN = {
    ToolErrorKind.TIMEOUT,
    ToolErrorKind.EXCEPTION,
    ToolErrorKind.OUT_OF_MEMORY,
    ToolErrorKind.CRASHED,
    ToolErrorKind.LIMIT,
}


def scored(part: Part, trajectory: Trajectory) -> Trajectory:
    """With the reward that the engine would give it."""
    found = part("score.score")(trajectory)
    worth = found.reward
    if worth is None:
        worth = sum(one.value for one in found.parts)
    return replace(trajectory, reward=worth)


def rules() -> StopRules:
    return StopRules.of(load_recipe(FOLDER / "chat.toml").shared.task)


@pytest.mark.parametrize("purpose", Purpose)
@pytest.mark.parametrize(("reward", "worth"), [(1.0, 1.0), (0.0, 0.0), (0.5, 0.0), (2.0, 0.0)])
def test_all_tests_or_nothing(part: Part, purpose: Purpose, reward: float, worth: float) -> None:
    assert scored(part, ran(SEEN, submitted(reward), purpose=purpose)).reward == worth


@pytest.mark.parametrize("stop", sorted(set(StopReason) - {StopReason.TOOL_SIGNALED_DONE}))
def test_only_a_normal_end_is_paid(part: Part, stop: StopReason) -> None:
    """Whatever the last call says: a verdict counts where it ended the trajectory."""
    for calls in ((), (SEEN,), (SEEN, submitted(1.0))):
        assert scored(part, ran(*calls, stop=stop)).reward == 0.0


def test_a_submission_without_tests_is_no_wrong_answer(part: Part) -> None:
    with pytest.raises(ValueError, match="'pages' was submitted and nothing verified it: name a"):
        part("score.score")(ran(submitted(None)))


def test_figures_of_the_verification(part: Part) -> None:
    told = submitted(0.0, tests_passed=3, tests_wanted=4, tampered_files=1, start_seconds=2)
    training = part("score.score")(ran(told))
    assert [(one.name, one.value) for one in training.parts] == [("solved", 0.0)]
    (event,) = training.events
    assert (event.kind, event.data["tests_passed"], event.data["tests_wanted"]) == (
        "measured",
        3,
        4,
    )
    evaluated = part("score.score")(ran(told, purpose=Purpose.EVAL))
    parts = {one.name: one.value for one in evaluated.parts}
    assert evaluated.reward == 0.0, "figures enter no sum"
    assert (parts["submitted"], parts["tampered_files"], parts["tests_seconds"]) == (1.0, 1, 0.0)
    unsubmitted = part("score.score")(ran(SEEN, stop=StopReason.EMPTY_OUTPUT))
    assert not any(unsubmitted.events[0].data.values())


@pytest.mark.parametrize("stop", StopReason)
def test_what_a_stop_means_for_the_loss(part: Part, stop: StopReason) -> None:
    """Any timeout, exception or overlength: reward 0, and out of the loss."""
    ended = scored(part, ran(SEEN, submitted(1.0), stop=stop))
    found = stop_effect(ended, rules())
    assert found.masked is (stop in MASKED)
    if found.masked:
        assert ended.reward + found.adjustment == 0.0


@pytest.mark.parametrize("kind", ToolErrorKind)
def test_a_step_that_broke_costs_a_solved_task_its_reward(part: Part, kind: ToolErrorKind) -> None:
    solved = scored(part, ran(failed(kind), submitted(1.0)))
    assert solved.reward == 1.0
    found = stop_effect(solved, rules())
    assert (found.masked, solved.reward + found.adjustment) == (
        (True, 0.0) if kind in BROKEN else (False, 1.0)
    )


def test_what_infrastructure_ended_is_masked_and_no_part_of_the_baseline(part: Part) -> None:
    lost = ran(SEEN, stop=StopReason.SESSION_LOST, status=Status.ERRORED)
    found = stop_effect(scored(part, lost), rules())
    assert found.masked
    assert found.outside_baseline


def test_masked_members_stay_in_the_baseline_unless_asked(part: Part) -> None:
    late = scored(part, ran(SEEN, stop=StopReason.TRAJECTORY_TIMEOUT))
    assert not stop_effect(late, rules()).outside_baseline
    alone = replace(rules(), exclude_masked=True)
    assert stop_effect(late, alone).outside_baseline


@pytest.mark.parametrize(("rule", "masked", "worth"), [("keep", False, 1.0), ("mask", True, 1.0)])
def test_each_stop_has_an_option(part: Part, rule: str, masked: bool, worth: float) -> None:
    told: Any = f"task.stops.tool_timeout={rule}"
    recipe = load_recipe(FOLDER / "chat.toml", (told,))
    slow = scored(part, ran(failed(ToolErrorKind.TIMEOUT), submitted(1.0)))
    found = stop_effect(slow, StopRules.of(recipe.shared.task))
    assert (found.masked, slow.reward + found.adjustment) == (masked, worth)
