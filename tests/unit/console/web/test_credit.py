"""Advantages on a trajectory's page are those that the learner gives its tokens, or none."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from console.web.telling.credit import Formula, credit_of
from console.web.telling.group_credit import group_credit, member_of
from learner.config.objective import Advantage, Credit, Kl
from learner.credit.assign import assigned
from learner.training.batch import rows_of
from tests.support.recorded_runs import Recorded
from toolwright import types as t
from toolwright.wire import trajectory_to_proto

TURNS = 3
ANCHORS = ("python", "search", "plan")
VERSION = t.WeightVersion(lineage="ab", step=1)


def group_of(chance: np.random.Generator, size: int = 6) -> t.Group:
    """Trajectories of up to TURNS turns with rewards, turn rewards and anchors; one of them is
    masked, and one more is outside of the baseline."""
    members = []
    for number in range(size):
        turns = int(chance.integers(1, TURNS + 1))
        segments = [t.Segment(author=t.Author.PROMPT, token_ids=t.ids((1, 2)))]
        for turn in range(turns):
            written = t.ids(range(int(chance.integers(1, 5))))
            chances = t.floats(0.0 for _ in written)
            segments += [
                t.Segment(
                    author=t.Author.MODEL, token_ids=written, logprobs=chances,
                    turn=turn, trainable=True, weight_version=VERSION,
                ),
                t.Segment(author=t.Author.TOOL, token_ids=t.ids((7,)), turn=turn),
            ]  # fmt: skip
        parts = [
            t.RewardPart(name="step", value=float(chance.integers(0, 3)), turn=turn)
            for turn in range(turns)
            if chance.random() < 0.8
        ]
        anchors = {
            turn: tuple(name for name in ANCHORS if chance.random() < 0.6) for turn in range(turns)
        }
        members.append(
            t.Trajectory(
                id=f"g-{number}", group_id="g", task=t.Task(id="q", data_source="hard"),
                sequences=(t.Sequence(id=f"g-{number}.0", segments=tuple(segments)),),
                status=t.Status.COMPLETED, stop_reason=t.StopReason.ANSWERED,
                reward=float(chance.integers(0, 4)) / 3, reward_parts=tuple(parts),
                anchors=anchors, masked=number == 1, outside_baseline=number == 2,
            )
        )  # fmt: skip
    return t.Group(id="g", trajectories=tuple(members))


def learner(advantage: dict[str, Any], credit: dict[str, Any], **kl: Any) -> dict[str, Any]:
    """The learner's tables as its resolved recipe has them."""
    tables = {"advantage": Advantage(**advantage), "credit": Credit(**credit), "kl": Kl(**kl)}
    return {name: json.loads(table.model_dump_json()) for name, table in tables.items()}


@pytest.mark.parametrize(
    ("advantage", "credit"),
    [
        ({}, {}),
        ({"std": "none", "weights": {"hard": 2.0}}, {"count_in_reward": True}),
        ({"estimator": "rloo"}, {"turns": "position", "discount": 0.9, "several": "sum"}),
        ({"estimator": "opo"}, {"turns": "group", "outcome_in_return": True, "singleton": "raw"}),
        ({"std": "population"}, {"turns": "alone", "weight": 0.3}),
        ({"weights": {"hard": 0.5}}, {"turns": "anchor", "first_turn": True, "ignore": ("plan",)}),
        ({}, {"turns": "anchor", "count_in_reward": True, "several": "sum", "std": "sample"}),
    ],
)
def test_an_advantage_is_the_one_that_the_learner_gives_the_tokens(
    advantage: dict[str, Any], credit: dict[str, Any]
) -> None:
    formula = Formula.of(learner(advantage, credit))
    for seed in range(5):
        group = group_of(np.random.default_rng(seed))
        rows = [row for one in group.trajectories for row in rows_of(one, temperature=1.0)]
        done, _ = assigned(rows, [group], Advantage(**advantage), Credit(**credit))
        by_name = {row.trajectory: row for row in done}
        members = [member_of(trajectory_to_proto(one)) for one in group.trajectories]
        for place, trajectory in enumerate(group.trajectories):
            told = credit_of(members, place, formula)
            row = by_name.get(trajectory.id)
            if row is None:
                assert told["advantage"] is None
                assert "carries no loss" in told["why"]
                continue
            turns = {one["turn"]: one["advantage"] for one in told["turns"]}
            for turn, start, end in trajectory.sequences[0].action_spans:
                known = turns.get(turn)
                expected = told["advantage"] if known is None else known
                assert row.advantage[start:end] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("recipe", "why"),
    [
        (None, "tells no recipe"),
        ({"advantage": "x"}, "tells no recipe"),
        (learner({"estimator": "reinforce_pp"}, {}), "reinforce_pp, compares it with the whole"),
        (learner({}, {}, coefficient=0.1, place="reward"), "distance to the reference policy"),
        (learner({}, {"branches": "hard"}), "over branches"),
        (learner({}, {}) | {"loss": {"kind": "distill"}}, "alone knew the teacher's log-probs"),
    ],
)
def test_what_is_not_known_is_said_and_turn_rewards_are_shown_all_the_same(
    recipe: Any, why: str
) -> None:
    group = group_of(np.random.default_rng(0))
    members = [member_of(trajectory_to_proto(one)) for one in group.trajectories]
    told = credit_of(members, 0, Formula.of(recipe))
    assert told["advantage"] is None
    assert why in told["why"]
    earned = {one["turn"]: one["reward"] for one in told["turns"]}
    assert earned == {p.turn: p.value for p in group.trajectories[0].reward_parts if p.value}
    assert all(one["advantage"] is None for one in told["turns"])


def test_a_group_in_the_journal_is_compared_without_what_the_learner_leaves_out(
    run: Recorded,
) -> None:
    (run.folder / "learner.resolved.json").write_text(
        json.dumps({"learner": learner({}, {})}), encoding="utf-8"
    )
    rewards = (1.0, 0.0, 0.0, float("nan"))
    run.journal([run.trajectory(f"g0-{n}", reward=reward) for n, reward in enumerate(rewards)])
    told = [group_credit(run.folder, 1, number, trained=True) for number in range(4)]
    expected = (2 / 3) / (1 / 3) ** 0.5  # over the sample deviation of 1, 0, 0
    assert told[0]["advantage"] == pytest.approx(expected, abs=1e-4)
    assert told[1]["advantage"] == pytest.approx(-expected / 2, abs=1e-4)
    assert "no number" in told[3]["why"]
    assert "never got" in group_credit(run.folder, 1, 0, trained=False)["why"]


@pytest.fixture
def run(tmp_path: Any) -> Recorded:
    return Recorded(tmp_path / "run")


def test_turns_that_are_compared_over_the_batch_are_said_to_be() -> None:
    members = [
        member_of(trajectory_to_proto(one))
        for one in group_of(np.random.default_rng(0)).trajectories
    ]
    formula = Formula.of(learner({}, {"turns": "group", "scope": "batch"}))
    earned = next(n for n, one in enumerate(members) if any(one.turn_rewards) and not one.masked)
    told = credit_of(members, earned, formula)
    assert told["advantage"] is not None
    assert "compared with those of the whole batch" in told["why"]
    assert {one["advantage"] for one in told["turns"]} == {None}
