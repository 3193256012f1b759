"""Trajectories with rewards of turns and anchors, by hand and at random."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Any, get_args

from hypothesis import strategies as st

from learner.config.objective import Advantage, Credit
from learner.credit.assign import assigned
from learner.training.batch import Row, rows_of
from toolwright.credit.estimators import ESTIMATORS
from toolwright.credit.turns import TurnsBy
from toolwright.types import (
    Author,
    Group,
    RewardPart,
    Segment,
    Sequence,
    Status,
    StopReason,
    Task,
    Trajectory,
)


@dataclass(frozen=True, kw_only=True)
class Step:
    """A turn: tokens of the action, tokens of the observation after it, what it earned."""

    tokens: int = 2
    seen: int = 1
    reward: float = 0.0
    anchors: tuple[str, ...] = ()


def sequence(name: str, steps: Seq[Step], *, first: int = 0, **fields: Any) -> Sequence:
    """A prompt of two tokens, then the turns, numbered from `first`. Log-probs are -1."""
    segments = [Segment(author=Author.PROMPT, token_ids=(1, 2))]
    for turn, step in enumerate(steps, first):
        action = Segment(
            author=Author.MODEL,
            token_ids=(3,) * step.tokens,
            turn=turn,
            logprobs=(-1.0,) * step.tokens,
            trainable=True,
        )
        seen = Segment(author=Author.TOOL, token_ids=(4,) * step.seen, turn=turn)
        segments += [action, seen]
    return Sequence(id=name, segments=tuple(segments), **fields)


def trajectory(
    name: str, group: str, reward: float, steps: Seq[Step], *, source: str = "", **fields: Any
) -> Trajectory:
    """One sequence, unless `sequences` says otherwise."""
    fields.setdefault("sequences", (sequence(f"{name}.0", steps),))
    return Trajectory(
        id=name,
        group_id=group,
        task=Task(id=group, data_source=source),
        status=Status.COMPLETED,
        stop_reason=StopReason.ANSWERED,
        reward=reward,
        reward_parts=tuple(
            RewardPart(name="step", value=step.reward, turn=turn)
            for turn, step in enumerate(steps)
            if step.reward
        ),
        anchors={turn: step.anchors for turn, step in enumerate(steps) if step.anchors},
        **fields,
    )


def group(name: str, *members: Trajectory) -> Group:
    """A group of these."""
    return Group(id=name, trajectories=members)


def rows(groups: Seq[Group]) -> list[Row]:
    """The batch of these groups, without advantages."""
    return [row for g in groups for t in g.trajectories for row in rows_of(t, temperature=1.0)]


def credited(
    groups: Seq[Group], advantage: Advantage | None = None, credit: Credit | None = None
) -> dict[str, list[float]]:
    """Advantages of the targets, by trajectory; its rows one after the other."""
    done, _ = assigned(rows(groups), groups, advantage or Advantage(), credit or Credit())
    out: dict[str, list[float]] = {}
    for row in done:
        out.setdefault(row.trajectory, []).extend(row.advantage[row.target].tolist())
    return out


steps = st.lists(
    st.builds(
        Step,
        tokens=st.integers(1, 3),
        seen=st.integers(0, 2),
        reward=st.integers(-2, 2).map(lambda n: n / 4),
        anchors=st.lists(st.sampled_from("xyz"), max_size=2).map(tuple),
    ),
    min_size=1,
    max_size=4,
)


@st.composite
def batches(draw: st.DrawFn) -> list[Group]:
    """Up to three groups of up to four members, some of which are masked or outside."""
    made = []
    for number in range(draw(st.integers(0, 3))):
        members = [
            trajectory(
                f"{number}/{index}",
                f"g{number}",
                draw(st.integers(-2, 2).map(float)),
                draw(steps),
                source=draw(st.just("m") if number else st.just("s")),
                masked=draw(st.booleans()) and draw(st.booleans()),
                outside_baseline=draw(st.booleans()) and draw(st.booleans()),
            )
            for index in range(draw(st.integers(1, 4)))
        ]
        made.append(group(f"g{number}", *members))
    return made


advantages = st.builds(
    Advantage,
    estimator=st.sampled_from(list(ESTIMATORS)),
    std=st.sampled_from(["population", "sample", "none"]),
    singleton=st.sampled_from(["zero", "raw"]),
    discount=st.sampled_from([1.0, 0.9]),
    per_data_source=st.booleans(),
)
credits = st.builds(
    Credit,
    turns=st.sampled_from(get_args(TurnsBy)),
    weight=st.sampled_from([0.0, 0.5, 1.0]),
    outcome_in_return=st.booleans(),
    count_in_reward=st.booleans(),
    std=st.sampled_from(["population", "sample", "none"]),
    singleton=st.sampled_from(["zero", "raw", "batch"]),
    scope=st.sampled_from(["prompt", "batch"]),
    several=st.sampled_from(["mean", "sum"]),
    first_turn=st.booleans(),
    branches=st.sampled_from(["soft", "hard"]),
)
