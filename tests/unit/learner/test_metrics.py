"""What a step says about itself."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest

from learner.metrics import gap_of, training_stats, trajectory_stats
from tests.integration.learner.fake_engine import random_group
from toolwright.types import (
    CallOutcome,
    CallRecord,
    Event,
    Group,
    ToolErrorKind,
    Trajectory,
    WeightVersion,
)

V = WeightVersion(lineage="a", step=3)


def test_masked_trajectories_count_only_as_masked() -> None:
    first, *others = random_group(1, V, Path())
    group = Group(id="g1", trajectories=(replace(first, masked=True, reward=9.0), *others))
    facts = trajectory_stats([group], WeightVersion(lineage="a", step=5))
    assert (facts["masked"], facts["trajectories"]) == (1, 4)
    assert facts["reward"] == pytest.approx(2 / 3)
    assert facts["reward/answer"] == pytest.approx(2 / 3)
    assert facts["staleness_max"] == 2
    assert facts["stop/answered"] == 4


@pytest.mark.quick
def test_failed_rewards_and_cut_observations_are_counted() -> None:
    def having(trajectory: Trajectory, kind: str, **data: object) -> Trajectory:
        return replace(trajectory, events=(Event(kind=kind, turn=0, data=data),))

    one, two, three, four = random_group(1, V, Path())
    members = (
        replace(having(one, "reward_failed", error="returned 1e+300"), masked=True, reward=0.0),
        having(two, "observation_truncated", tokens=5),
        three,
        replace(having(four, "reward_failed", error="returned 1e+300"), masked=True, reward=0.0),
    )
    facts = trajectory_stats([Group(id="g1", trajectories=members)], V)
    assert (facts["rewards_failed"], facts["reward_error"]) == (2, "returned 1e+300")
    assert facts["observation_cut_fraction"] == 0.5
    assert facts["reward"] == pytest.approx((two.reward + three.reward) / 2)


def test_figures_of_a_recipe_are_means_over_who_states_them() -> None:
    one, other, masked, silent = random_group(1, V, Path())

    def stating(trajectory: Trajectory, **data: object) -> Trajectory:
        return replace(trajectory, events=(Event(kind="measured", turn=0, data=data),))

    figures = {"length": 4.0, "name": "x", "worst": math.inf, "none": None}
    group = Group(
        id="g1",
        trajectories=(
            stating(one, **figures),
            stating(other, length=8, found=True),
            replace(stating(masked, length=100.0), masked=True),
            replace(silent, events=(Event(kind="remembered", turn=0, data={"length": 50.0}),)),
        ),
    )
    facts = trajectory_stats([group], V)
    found = {name: value for name, value in facts.items() if name.startswith("measured/")}
    assert found == {"measured/length": 6.0, "measured/found": 1.0}
    endless = stating(one, **{f"f{number:04}": 1.0 for number in range(10_000)})
    facts = trajectory_stats([Group(id="g1", trajectories=(endless,))], V)
    assert sum(name.startswith("measured/") for name in facts) == 32


def test_a_figure_that_is_a_list_has_a_mean_and_a_deviation_over_all_members() -> None:
    one, other, *_ = random_group(1, V, Path())
    lengths: tuple[list[Any], ...] = ([40, 60, "x", math.nan], [], [80.0])
    events = tuple(Event(kind="measured", turn=0, data={"query": found}) for found in lengths)
    members = (replace(one, events=events[:1]), replace(other, events=events[1:]))
    facts = trajectory_stats([Group(id="g1", trajectories=members)], V)
    # 40, 60 and 80: mean 60, squares 400 + 0 + 400.
    found = {name: value for name, value in facts.items() if name.startswith("measured/")}
    assert found == {
        "measured/query": 60.0, "measured/query_deviation": pytest.approx(math.sqrt(800 / 3))
    }  # fmt: skip


def test_a_group_has_signal_when_its_baseline_differs_and_somebody_carries_loss() -> None:
    first, *others = random_group(1, V, Path())  # rewards 0, 1, 0, 1

    def signals(*changes: dict[str, Any]) -> int:
        members = [
            replace(one, **change)
            for one, change in zip_longest((first, *others), changes, fillvalue={})
        ]
        return trajectory_stats([Group(id="g1", trajectories=tuple(members))], V)[
            "groups_with_signal"
        ]

    assert signals() == 1
    masked: dict[str, Any] = {"masked": True}
    assert signals({}, masked, {}, masked) == 1  # the masked ones are still what others miss
    outside: dict[str, Any] = {"outside_baseline": True}
    assert signals({}, outside, {}, outside) == 0


def test_what_the_engine_sent_as_too_old_counts_neither_as_trained_nor_as_stale() -> None:
    one, *_ = random_group(1, WeightVersion(lineage="a", step=0), Path())
    (sequence,) = one.sequences
    prompt, old, tool, late = sequence.segments
    segments = (prompt, replace(old, trainable=False), tool, replace(late, weight_version=V))
    one = replace(one, sequences=(replace(sequence, segments=segments),))
    facts = trajectory_stats([Group(id="g1", trajectories=(one,))], V)
    assert facts["tokens_without_loss"] == len(old.token_ids)
    assert (facts["staleness_max"], facts["versions_per_trajectory"]) == (0, 2)


def test_nothing_gives_no_numbers_instead_of_nan() -> None:
    assert training_stats({}) == {}
    assert gap_of({"fresh_tokens": 0.0}) == {}
    nothing = trajectory_stats([], V)
    assert set(nothing) == {
        "groups", "trajectories", "masked", "outside_baseline", "tokens_without_loss",
    }  # fmt: skip
    assert not any(nothing.values())


def test_sums_become_means() -> None:
    sums = {
        "tokens": 4.0, "entropy": 2.0, "clipped_above": 1.0, "clipped_below": 2.0, "loss": 1.5,
        "compared": 5.0, "gap": 0.4, "max_gap": 0.3, "max_rho": 1.2, "masked_tokens": 1.0,
        "vetoed": 2.0, "rejected": 0.0, "rollout_logp": -5.0, "kl_rollout_k1": 1.0,
        "kl_rollout_k3": 0.5, "weight": 4.0, "weight_squared": 8.0, "weight_capped": 1.0,
    }  # fmt: skip
    out = training_stats(sums)
    assert out["entropy"] == 0.5
    assert (out["clip_fraction"], out["clip_high_fraction"]) == (0.75, 0.25)
    assert out["loss"] == 1.5
    assert out["offpolicy_gap_mean"] == pytest.approx(0.08), "over what was compared"
    assert out["correction_masked_fraction"] == pytest.approx(0.2)
    assert (out["vetoed_sequences"], out["rejected_sequences"]) == (2.0, 0.0)
    assert out["perplexity_difference"] == pytest.approx(math.exp(1.2) - math.exp(1.0))
    assert out["effective_sample_fraction"] == pytest.approx(0.5)


def test_calls_that_failed_are_counted_apart_from_those_that_were_written_wrong() -> None:
    def call(tool: str, error: ToolErrorKind, said: str = "", *, valid: bool = True) -> CallRecord:
        outcome = CallOutcome(observation=said, valid=valid, error=error)
        return CallRecord(call_id="c", turn=0, index=0, tool=tool, action="a", outcome=outcome)

    raised, wrong = ToolErrorKind.EXCEPTION, ToolErrorKind.INVALID_ACTION
    calls = (
        call("planet", raised, "Traceback (most recent call last):\n  x\nRuntimeError: away"),
        call("planet", raised, "RuntimeError:\n away"),
        call("planet", wrong, "no JSON"),
        call("planet", ToolErrorKind.NONE, "its own check refused it", valid=False),
        call("made-up", ToolErrorKind.UNKNOWN_TOOL),
        call("python", ToolErrorKind.NONE, "42"),
        call("python", ToolErrorKind.TIMEOUT),
        call("python", ToolErrorKind.CANCELLED),
        call("python", raised, "x" * 9999),
    )
    first, *others = random_group(1, V, Path())
    # A masked one counts: the tool may be why.
    group = Group(id="g1", trajectories=(replace(first, masked=True, calls=calls), *others))
    facts = trajectory_stats([group], V)
    made = len(calls) + sum(len(one.calls) for one in others)
    assert facts["call_failed_fraction"] == 4 / made
    assert facts["call_invalid_fraction"] == 3 / made
    assert facts["call_failed_fraction/planet"] == 1.0
    assert facts["call_failed_fraction/python"] == 0.5
    assert "call_failed_fraction/made-up" not in facts
    assert facts["call_error"] == "planet: RuntimeError: away"
    (long,) = {trajectory_stats(
        [Group(id="g", trajectories=(replace(first, calls=calls[-1:]),))], V
    )["call_error"]}  # fmt: skip
    assert len(long) == 200
    assert "call_error" not in trajectory_stats([Group(id="g", trajectories=tuple(others))], V)
