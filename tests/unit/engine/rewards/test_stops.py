"""Every row of what a stop means for the loss."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from typing import Any

import pytest

from engine.core.rewards.score import Score
from engine.core.rewards.settle import settled
from engine.core.rewards.stops import StopEffect, StopRules, stop_effect
from tests.support.docs import example
from toolwright.recipe import TaskTable
from toolwright.recipe.models.stop_rules import RULED, read_stop_rule, read_stop_rules
from toolwright.types import (
    CallOutcome,
    CallRecord,
    Purpose,
    RewardPart,
    Status,
    StopReason,
    Task,
    ToolErrorKind,
    Trajectory,
)

NOTHING = StopEffect()


def trajectory(reason: StopReason = StopReason.ANSWERED, **fields: Any) -> Trajectory:
    made = Trajectory(
        id="g-0",
        group_id="g",
        task=Task(id="q"),
        sequences=(),
        status=Status.COMPLETED,
        stop_reason=reason,
        reward=1.0,
    )
    return replace(made, **fields)


def call(error: ToolErrorKind = ToolErrorKind.NONE, *, valid: bool = True) -> CallRecord:
    outcome = CallOutcome(observation="o", valid=valid, error=error)
    return CallRecord(call_id="c", turn=0, index=0, tool="t", action="a", outcome=outcome)


def rules(**table: Any) -> StopRules:
    return StopRules.of(TaskTable(source="s", reward="r", **table))


@pytest.mark.parametrize("reason", StopReason)
def test_without_rules_every_stop_of_the_policy_keeps(reason: StopReason) -> None:
    assert stop_effect(trajectory(reason), StopRules()) == NOTHING


@pytest.mark.parametrize("name", RULED)
def test_each_stop_reason_can_be_kept_masked_and_penalised(name: str) -> None:
    ended = trajectory(RULED[name])
    assert stop_effect(ended, rules(stops={name: "keep"})) == NOTHING
    assert stop_effect(ended, rules(stops={name: "mask"})) == StopEffect(
        masked=True, reasons=(name,)
    )
    assert stop_effect(ended, rules(stops={name: "mask:-1"})) == StopEffect(
        masked=True, adjustment=-2.0, reasons=(name,)
    )
    assert stop_effect(ended, rules(stops={name: "penalise:-0.5"})) == StopEffect(
        adjustment=-0.5, reasons=(name,)
    )
    other = next(reason for reason in RULED.values() if reason is not RULED[name])
    assert stop_effect(trajectory(other), rules(stops={name: "mask"})) == NOTHING


@pytest.mark.parametrize(
    "reason",
    [
        StopReason.MAX_RESPONSE_LENGTH,
        StopReason.MAX_MODEL_LENGTH,
        StopReason.MAX_ACTION_LENGTH,
        StopReason.MAX_IMAGE_BYTES,
    ],
)
def test_mask_overlong_is_what_a_length_ended_and_stays_in_the_baseline(reason: StopReason) -> None:
    found = stop_effect(trajectory(reason), rules(mask_overlong=True))
    assert found == StopEffect(masked=True, reasons=("overlong",))


@pytest.mark.parametrize(
    "reason",
    [StopReason.ANSWERED, StopReason.MAX_TURNS, StopReason.TRAJECTORY_TIMEOUT],
)
def test_mask_overlong_is_nothing_else(reason: StopReason) -> None:
    assert stop_effect(trajectory(reason), rules(mask_overlong=True)) == NOTHING


def test_mask_void_is_neither_a_call_understood_nor_an_answer() -> None:
    void = rules(mask_void=True)
    silent = trajectory(StopReason.NO_ACTION_IN_OUTPUT)
    masked = StopEffect(masked=True, reasons=("void",))
    assert stop_effect(silent, void) == masked
    assert stop_effect(replace(silent, calls=(call(valid=False),)), void) == masked
    assert stop_effect(replace(silent, calls=(call(valid=False), call())), void) == NOTHING
    assert stop_effect(trajectory(StopReason.EMPTY_OUTPUT), void) == masked
    assert stop_effect(trajectory(), void) == NOTHING
    assert stop_effect(trajectory(StopReason.TOOL_SIGNALED_DONE), void) == NOTHING


@pytest.mark.parametrize(("exclude", "outside"), [(None, True), (True, True), (False, False)])
def test_what_infrastructure_ended_is_masked_and_by_default_outside(
    exclude: bool | None, outside: bool
) -> None:
    ended = trajectory(StopReason.SAMPLER_ERROR, status=Status.ERRORED, reward=0.0)
    found = stop_effect(ended, rules(exclude_masked_from_baseline=exclude))
    assert (found.masked, found.outside_baseline) == (True, outside)


@pytest.mark.parametrize(("exclude", "outside"), [(None, False), (True, True), (False, False)])
def test_what_a_length_ended_is_by_default_inside(exclude: bool | None, outside: bool) -> None:
    ended = trajectory(StopReason.MAX_RESPONSE_LENGTH)
    found = stop_effect(ended, rules(mask_overlong=True, exclude_masked_from_baseline=exclude))
    assert (found.masked, found.outside_baseline) == (True, outside)
    kept = stop_effect(
        trajectory(), rules(mask_overlong=True, exclude_masked_from_baseline=exclude)
    )
    assert not kept.outside_baseline


@pytest.mark.parametrize(
    ("error", "rule"),
    [
        (ToolErrorKind.TIMEOUT, "tool_timeout"),
        (ToolErrorKind.EXCEPTION, "tool_exception"),
        (ToolErrorKind.OUT_OF_MEMORY, "tool_exception"),
        (ToolErrorKind.CRASHED, "tool_exception"),
        (ToolErrorKind.LIMIT, "tool_exception"),
        (ToolErrorKind.INVALID_ACTION, None),
        (ToolErrorKind.UNKNOWN_TOOL, None),
        (ToolErrorKind.NONE, None),
    ],
)
def test_a_tool_s_failure_counts_whatever_ended_the_trajectory(
    error: ToolErrorKind, rule: str | None
) -> None:
    both = rules(stops={"tool_timeout": "mask", "tool_exception": "mask"})
    went_on = trajectory(calls=(call(error), call()))
    expected = NOTHING if rule is None else StopEffect(masked=True, reasons=(rule,))
    assert stop_effect(went_on, both) == expected


def test_several_rules_together() -> None:
    ended = trajectory(StopReason.MAX_RESPONSE_LENGTH, calls=(call(ToolErrorKind.TIMEOUT),))
    both = {"tool_timeout": "penalise:-0.25", "max_response_length": "penalise:-0.5"}
    assert stop_effect(ended, rules(stops=both)).adjustment == -0.75
    found = stop_effect(ended, rules(stops={**both, "tool_timeout": "mask:0"}))
    assert (found.adjustment, found.masked) == (-1.0, True)
    lower = {"tool_timeout": "mask:0.5", "max_response_length": "mask:-1"}
    assert stop_effect(ended, rules(stops=lower)).adjustment == -2.0


@pytest.mark.parametrize(
    "text",
    ["", "drop", "keep:1", "mask:", "mask:nan", "mask:inf", "penalise", "penalise:0",
     "penalise:0.5", "penalise:x", "mask:0:0", " mask"],
)  # fmt: skip
def test_what_is_no_rule(text: str) -> None:
    with pytest.raises(ValueError, match=r'write "keep", "mask"'):
        read_stop_rule(text)


@pytest.mark.parametrize("name", ["MAX_TURNS", "timeout", "sampler_error", "reward_error", "stale"])
def test_what_takes_no_rule(name: str) -> None:
    with pytest.raises(ValueError, match="takes no rule; these do: answered"):
        read_stop_rules({name: "mask"})


def test_settling_tells_why_and_keeps_the_parts_a_sum() -> None:
    strict = rules(stops={"max_turns": "mask:0"})
    score = Score(parts=(RewardPart(name="correct", value=1.0),))
    done = settled(trajectory(StopReason.MAX_TURNS, reward=0.0), score, strict)
    assert (done.reward, done.masked, done.outside_baseline) == (0.0, True, False)
    assert sum(part.value for part in done.reward_parts) == done.reward
    (event,) = done.events
    assert (event.kind, event.data["rules"]) == ("stop_rules", ["max_turns"])
    assert done.stop_reason is StopReason.MAX_TURNS


def test_a_reward_function_may_keep_what_a_rule_masks_but_not_what_infrastructure_ended() -> None:
    strict = rules(stops={"max_turns": "mask"}, exclude_masked_from_baseline=True)
    keep = Score(reward=1.0, keep=True)
    kept = settled(trajectory(StopReason.MAX_TURNS), keep, strict)
    assert (kept.masked, kept.outside_baseline) == (False, False)
    lost = trajectory(StopReason.SAMPLER_ERROR, status=Status.ERRORED)
    assert settled(lost, keep, strict).masked
    assert settled(lost, None, strict).masked


def test_an_evaluation_reports_the_reward_alone() -> None:
    asked = trajectory(StopReason.MAX_TURNS, task=Task(id="q", purpose=Purpose.EVAL))
    done = settled(asked, Score(reward=1.0), rules(stops={"max_turns": "mask:0"}))
    assert (done.reward, done.masked, done.events) == (1.0, False, ())


def test_swe_s_rule_is_a_recipe() -> None:
    """Any timeout, exception or overlength: reward 0 and masked, as the table in the docs."""
    swe = rules(**tomllib.loads(example("train/recipe.md", "# SWE:", "toml"))["task"])
    for reason in (
        StopReason.TOOL_TIMEOUT,
        StopReason.TRAJECTORY_TIMEOUT,
        StopReason.TOOL_EXCEPTION,
        StopReason.MAX_RESPONSE_LENGTH,
        StopReason.MAX_MODEL_LENGTH,
        StopReason.MAX_ACTION_LENGTH,
    ):
        done = settled(trajectory(reason), Score(reward=1.0), swe)
        assert (done.reward, done.masked) == (0.0, True), reason
    for error in (ToolErrorKind.TIMEOUT, ToolErrorKind.EXCEPTION, ToolErrorKind.CRASHED):
        done = settled(trajectory(calls=(call(error),)), Score(reward=1.0), swe)
        assert (done.reward, done.masked) == (0.0, True), error
    for reason in (StopReason.ANSWERED, StopReason.TOOL_SIGNALED_DONE):
        done = settled(trajectory(reason, calls=(call(),)), Score(reward=1.0), swe)
        assert (done.reward, done.masked) == (1.0, False)
