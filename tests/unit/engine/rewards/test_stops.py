"""Every row of what a stop means for the loss."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from typing import Any

import pytest

from engine.core.rewards.score import REWARD_FAILED, Score, failure
from engine.core.rewards.settle import settled
from engine.core.rewards.stops import StopEffect, StopRules, stop_effect
from tests.support.docs import example
from tests.support.finished_trajectories import trajectory
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


def ended(reason: StopReason = StopReason.ANSWERED, **fields: Any) -> Trajectory:
    return trajectory(**{"stop_reason": reason, "reward": 1.0, **fields})


def call(error: ToolErrorKind = ToolErrorKind.NONE, *, valid: bool = True) -> CallRecord:
    outcome = CallOutcome(observation="o", valid=valid, error=error)
    return CallRecord(call_id="c", turn=0, index=0, tool="t", action="a", outcome=outcome)


def rules(**table: Any) -> StopRules:
    return StopRules.of(TaskTable(source="s", reward="r", **table))


@pytest.mark.parametrize("reason", StopReason)
def test_without_rules_every_stop_of_the_policy_keeps(reason: StopReason) -> None:
    assert stop_effect(ended(reason), StopRules()) == NOTHING


@pytest.mark.parametrize("name", RULED)
def test_each_stop_reason_can_be_kept_masked_and_penalised(name: str) -> None:
    stopped, reasons = ended(RULED[name]), (name,)
    for rule, effect in {
        "keep": NOTHING,
        "mask": StopEffect(masked=True, reasons=reasons),
        "mask:-1": StopEffect(masked=True, adjustment=-2.0, reasons=reasons),
        "penalise:-0.5": StopEffect(adjustment=-0.5, reasons=reasons),
    }.items():
        assert stop_effect(stopped, rules(stops={name: rule})) == effect
    other = next(reason for reason in RULED.values() if reason is not RULED[name])
    assert stop_effect(ended(other), rules(stops={name: "mask"})) == NOTHING


@pytest.mark.parametrize("reason", StopReason)
def test_mask_overlong_is_what_a_length_ended_and_stays_in_the_baseline(reason: StopReason) -> None:
    lengths = ("MAX_RESPONSE_LENGTH", "MAX_MODEL_LENGTH", "MAX_ACTION_LENGTH", "MAX_IMAGE_BYTES")
    found = stop_effect(ended(reason), rules(mask_overlong=True))
    masked = StopEffect(masked=True, reasons=("overlong",))
    assert found == (masked if reason.name in lengths else NOTHING)


def test_mask_void_is_neither_a_call_understood_nor_an_answer() -> None:
    void = rules(mask_void=True)
    silent = ended(StopReason.NO_ACTION_IN_OUTPUT)
    masked = StopEffect(masked=True, reasons=("void",))
    assert stop_effect(silent, void) == masked
    assert stop_effect(replace(silent, calls=(call(valid=False),)), void) == masked
    assert stop_effect(replace(silent, calls=(call(valid=False), call())), void) == NOTHING
    assert stop_effect(ended(StopReason.EMPTY_OUTPUT), void) == masked
    assert stop_effect(ended(), void) == NOTHING
    assert stop_effect(ended(StopReason.TOOL_SIGNALED_DONE), void) == NOTHING


@pytest.mark.parametrize("exclude", [None, True, False])
def test_by_default_what_infrastructure_ended_is_outside_and_what_a_length_ended_inside(
    exclude: bool | None,
) -> None:
    table = rules(mask_overlong=True, exclude_masked_from_baseline=exclude)
    lost = ended(StopReason.SAMPLER_ERROR, status=Status.ERRORED, reward=0.0)
    for stopped, outside in ((lost, True), (ended(StopReason.MAX_RESPONSE_LENGTH), False)):
        found = stop_effect(stopped, table)
        assert found.masked
        assert found.outside_baseline is (outside if exclude is None else exclude)
    assert not stop_effect(ended(), table).outside_baseline


@pytest.mark.parametrize(
    ("error", "rule"),
    [
        (ToolErrorKind.TIMEOUT, "tool_timeout"),
        (ToolErrorKind.EXCEPTION, "tool_exception"),
        (ToolErrorKind.OUT_OF_MEMORY, "tool_exception"),
        (ToolErrorKind.INVALID_ACTION, None),
        (ToolErrorKind.NONE, None),
    ],
)
def test_a_tool_s_failure_counts_whatever_ended_the_trajectory(
    error: ToolErrorKind, rule: str | None
) -> None:
    both = rules(stops={"tool_timeout": "mask", "tool_exception": "mask"})
    went_on = ended(calls=(call(error), call()))
    expected = NOTHING if rule is None else StopEffect(masked=True, reasons=(rule,))
    assert stop_effect(went_on, both) == expected


def test_only_usable_rewards_of_tools_become_parts() -> None:
    """A service may send any finite number, and a failed or lost trajectory keeps none."""
    worth = [
        replace(call(), turn=turn, outcome=replace(call().outcome, reward=value))
        for turn, value in enumerate((0.5, None, 1e300, -1.0))
    ]
    done, table = ended(calls=tuple(worth)), rules(tool_rewards=True)
    found = settled(done, Score(reward=2.0), table)
    assert [(part.value, part.turn) for part in found.reward_parts] == [(0.5, 0), (-1.0, 3)]
    assert found.reward == 2.0
    assert settled(done, Score(reward=2.0), rules()).reward_parts == ()
    assert settled(done, failure(REWARD_FAILED, "KeyError"), table).reward_parts == ()
    assert settled(replace(done, status=Status.ERRORED), None, table).reward_parts == ()


def test_several_rules_together() -> None:
    stopped = ended(StopReason.MAX_RESPONSE_LENGTH, calls=(call(ToolErrorKind.TIMEOUT),))
    both = {"tool_timeout": "penalise:-0.25", "max_response_length": "penalise:-0.5"}
    assert stop_effect(stopped, rules(stops=both)).adjustment == -0.75
    found = stop_effect(stopped, rules(stops={**both, "tool_timeout": "mask:0"}))
    assert (found.adjustment, found.masked) == (-1.0, True)
    lower = {"tool_timeout": "mask:0.5", "max_response_length": "mask:-1"}
    assert stop_effect(stopped, rules(stops=lower)).adjustment == -2.0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "drop",
        "keep:1",
        "mask:",
        "mask:nan",
        "penalise",
        "penalise:0",
        "penalise:0.5",
        "mask:0:0",
    ],
)
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
    done = settled(ended(StopReason.MAX_TURNS, reward=0.0), score, strict)
    assert (done.reward, done.masked, done.outside_baseline) == (0.0, True, False)
    assert sum(part.value for part in done.reward_parts) == done.reward
    (event,) = done.events
    assert (event.kind, event.data["rules"]) == ("stop_rules", ["max_turns"])
    assert done.stop_reason is StopReason.MAX_TURNS


def test_a_reward_function_may_keep_what_a_rule_masks_but_not_what_infrastructure_ended() -> None:
    strict = rules(stops={"max_turns": "mask"}, exclude_masked_from_baseline=True)
    keep = Score(reward=1.0, keep=True)
    kept = settled(ended(StopReason.MAX_TURNS), keep, strict)
    assert (kept.masked, kept.outside_baseline) == (False, False)
    lost = ended(StopReason.SAMPLER_ERROR, status=Status.ERRORED)
    assert settled(lost, keep, strict).masked
    assert settled(lost, None, strict).masked


def test_an_evaluation_reports_the_reward_alone() -> None:
    asked = ended(StopReason.MAX_TURNS, task=Task(id="q", purpose=Purpose.EVAL))
    done = settled(asked, Score(reward=1.0), rules(stops={"max_turns": "mask:0"}))
    assert (done.reward, done.masked, done.events) == (1.0, False, ())


def test_swe_s_rule_is_a_recipe() -> None:
    """Any timeout, exception or overlength: reward 0 and masked, as the table in the docs."""
    swe = rules(**tomllib.loads(example("train/groups.md", "# SWE:", "toml"))["task"])
    ends = [(ended(reason), 0.0) for reason in (
        StopReason.TOOL_TIMEOUT, StopReason.TRAJECTORY_TIMEOUT, StopReason.TOOL_EXCEPTION,
        StopReason.MAX_RESPONSE_LENGTH, StopReason.MAX_MODEL_LENGTH, StopReason.MAX_ACTION_LENGTH,
    )]  # fmt: skip
    errors = (ToolErrorKind.TIMEOUT, ToolErrorKind.EXCEPTION, ToolErrorKind.CRASHED)
    ends += [(ended(calls=(call(error),)), 0.0) for error in errors]
    ends += [(ended(calls=(call(),)), 1.0), (ended(StopReason.TOOL_SIGNALED_DONE), 1.0)]
    for stopped, reward in ends:
        done = settled(stopped, Score(reward=1.0), swe)
        assert (done.reward, done.masked) == (reward, reward == 0.0), stopped
