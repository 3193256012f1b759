"""What is a score of a trajectory and what is not."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.rewards.reading import ScoreRefused, read_score
from engine.core.rewards.score import Score
from engine.core.rewards.settle import scored
from tests.support.finished_trajectories import observed, prompt, trajectory, wrote
from toolwright.types import (
    Event,
    RewardPart,
)
from toolwright.wire import serialize, trajectory_to_proto

TWO_TURNS = trajectory(0, prompt(), wrote(), observed(), wrote(turn=1))
PART = RewardPart(name="p", value=1.0)
DEEP: list[Any] = []
for _ in range(5000):
    DEEP = [DEEP]


def test_a_score_without_reward_is_the_sum_of_its_parts_without_a_turn() -> None:
    parts = [PART, RewardPart(name="q", value=0.5), RewardPart(name="step", value=9.0, turn=1)]
    score = read_score(Score(parts=parts), TWO_TURNS)
    assert (score.reward, score.total) == (None, 1.5)
    assert scored(TWO_TURNS, score).reward == 1.5


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (math.nan, "returned nan, not a finite number"),
        (None, "returned None, not a finite number"),
        (1e300, r"returned 1e\+300, not a finite number that a float32 holds \(3.4e\+38 at most\)"),
        ({"a": -1e39, "b": 1.0}, r"returned -1e\+39, not a finite number that a float32 holds"),
        (Score(reward="1"), "not a finite number"),  # type: ignore[arg-type]
        (Score(parts=[RewardPart(name="p", value=1e308)] * 2), "not a finite number"),
        (Score(parts=[RewardPart(name="p", value=1, turn=2)]), "turn 2; .* has turns 0 to 1"),
        (Score(parts=[RewardPart(name="p", value=1, turn=0.5)]), "turn 0.5"),  # type: ignore[arg-type]
        (Score(parts=[RewardPart(name="\udc80", value=1)]), "is not text"),
        (Score(parts=[("p", 1)]), "not a RewardPart"),  # type: ignore[list-item]
        (Score(parts=PART), "parts are RewardPart, not a list"),  # type: ignore[arg-type]
        (Score(reward=1, keep="mask"), "keep is True, False or None"),  # type: ignore[arg-type]
        (Score(reward=1, outside_baseline=1), "outside_baseline"),  # type: ignore[arg-type]
        (Score(reward=1, events=["judged"]), "not an Event"),  # type: ignore[list-item]
        (Score(reward=1, events=[Event(kind="e", turn=5)]), "event 'e': turn 5"),
        (Score(reward=1, weights={"other": 1.0}), "sequence 'other'; the sequences are "),
        (Score(reward=1, weights={TWO_TURNS.sequences[0].id: -1.0}), "-1 of sequence .* below 0"),
        (Score(reward=1, weights=2.0), "weights are float, not a dict"),  # type: ignore[arg-type]
        (Score(reward=1, events=[Event(kind="e", turn=0, data={"a": object()})]), "are not JSON"),
        (Score(reward=1, events=[Event(kind="e", turn=0, data={"a": DEEP})]), "are not JSON"),
        (Score(reward=1, events=[Event(kind="e", turn=0, data=[])]), "are not JSON"),  # type: ignore[arg-type]
        (Score(reward=1, anchors={2: ["a"]}), "anchors: turn 2"),
        (Score(reward=1, anchors={0: "add"}), "anchors of turn 0 are str, not a list"),
        (Score(reward=1, anchors=[]), "not a dictionary by turn"),  # type: ignore[arg-type]
        ({"\udc80": 1.0}, "is not text"),
        (object, "not a finite number"),
    ],
)
def test_what_is_no_score(value: Any, words: str) -> None:
    with pytest.raises(ScoreRefused, match=words):
        read_score(value, TWO_TURNS)


_ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(), max_size=3), inner, max_size=3)
        | st.tuples(inner, inner)
    ),
    max_leaves=6,
)
_SCORES = st.builds(
    Score,
    reward=st.none() | st.floats(-5, 5),
    parts=st.lists(
        st.builds(RewardPart, name=st.text(max_size=3), value=_ANY, turn=st.none() | _ANY)
        | st.just(PART),
        max_size=2,
    ),
    keep=st.sampled_from([None, True, False]),
    events=st.lists(st.builds(Event, kind=st.text(max_size=3), turn=_ANY, data=_ANY), max_size=1),
    anchors=st.dictionaries(st.integers(-1, 2), _ANY, max_size=2),
)


@settings(max_examples=150)
@given(value=_ANY | _SCORES)
def test_whatever_is_returned_is_refused_or_can_be_written(value: Any) -> None:
    try:
        score = read_score(value, TWO_TURNS)
    except ScoreRefused as error:
        str(error).encode()
        return
    done = scored(TWO_TURNS, score)
    assert math.isfinite(done.reward)
    serialize(trajectory_to_proto(done))
