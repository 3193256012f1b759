"""Several sequences a trajectory: their weights in the loss, their copies, their optimizer step."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from learner.config.objective import Credit, Loss
from learner.maths.aggregation import token_weights
from learner.metrics import sequence_stats
from learner.training.batch import Row, rows_of
from learner.training.minibatch import MiniBatch, counts_of, split
from tests.unit.learner.records import Step, credited, group, sequence, trajectory
from toolwright.credit.losses import AGGREGATIONS
from toolwright.types import Author, Event, Segment, Sequence, Trajectory
from toolwright.wire import trajectory_from_proto, trajectory_to_proto

pytestmark = pytest.mark.quick

SIZES = st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=4), max_size=6)
"""Policy tokens of each sequence of each trajectory."""


def flat(sizes: list[list[int]]) -> tuple[list[int], list[str]]:
    """(tokens of each sequence, its trajectory)."""
    counts = [count for own in sizes for count in own]
    return counts, [str(number) for number, own in enumerate(sizes) for _ in own]


@given(SIZES, st.floats(0.1, 100))
def test_a_trajectory_weighs_the_same_whatever_its_number_of_sequences(
    sizes: list[list[int]], norm: float
) -> None:
    counts, owners = flat(sizes)
    joined = [sum(own) for own in sizes]
    live = sum(size > 0 for size in joined)
    for mode in AGGREGATIONS:
        found = token_weights(counts, mode, norm=norm, trajectories=owners)
        whole = token_weights(joined, mode, norm=norm)
        sums: dict[str, float] = defaultdict(float)
        for owner, count, weight in zip(owners, counts, found, strict=True):
            sums[owner] += count * weight
            assert not count or weight == whole[int(owner)], mode
        for owner, size in enumerate(joined):
            assert sums[str(owner)] == pytest.approx(whole[owner] * size)
            if mode == "seq-mean-token-mean" and size:
                assert sums[str(owner)] == pytest.approx(1 / live)


@given(st.lists(st.integers(0, 9), max_size=8), st.floats(0.1, 100))
def test_one_sequence_a_trajectory_gives_the_weights_of_single_sequences_to_the_bit(
    counts: list[int], norm: float
) -> None:
    owners = [str(number) for number in range(len(counts))]
    for mode in AGGREGATIONS:
        found = token_weights(counts, mode, norm=norm, trajectories=owners)
        alone = token_weights(counts, mode, norm=norm)
        assert [w for w, n in zip(found, counts, strict=True) if n] == [
            w for w, n in zip(alone, counts, strict=True) if n
        ]


@given(
    st.lists(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 3)), min_size=1), max_size=4),
    st.booleans(),
)
def test_a_weight_counts_like_that_many_copies(
    sizes: list[list[tuple[int, int]]], together: bool
) -> None:
    """A sequence of weight n has n times the weight of each of n equal sequences."""
    once = [(str(t), count, copies) for t, own in enumerate(sizes) for count, copies in own]
    repeated = [(name, count) for name, count, copies in once for _ in range(copies)]
    for mode in AGGREGATIONS:
        found = token_weights(
            [count for _, count, _ in once],
            mode,
            trajectories=[name for name, _, _ in once] if together else None,
            copies=[float(copies) for _, _, copies in once],
        )
        each = iter(
            token_weights(
                [count for _, count in repeated],
                mode,
                trajectories=[name for name, _ in repeated] if together else None,
            )
        )
        for weight, (_, _, copies) in zip(found, once, strict=True):
            assert weight == pytest.approx(sum(next(each) for _ in range(copies)))


def forked(name: str = "t", **fields: float) -> Trajectory:
    """Two sequences. The second one begins with the first one's prompt and first action, copied as
    trainable, and has an action of its own."""
    parent = sequence(f"{name}.0", [Step(tokens=2), Step(tokens=3)])
    copied = parent.segments[:2]
    own = Segment(
        author=Author.MODEL, token_ids=(5, 6), turn=2, logprobs=(-1.0, -1.0), trainable=True
    )
    child = Sequence(
        id=f"{name}.1", segments=(*copied, own), parent=parent.id, fork_offset=4, **fields
    )
    event = Event(kind="sequence_forked", turn=2, data={"cause": "rewrite"})
    return trajectory(name, "g", 1.0, [], sequences=(parent, child), events=(event,))


def test_each_completion_of_a_forked_trajectory_is_a_target_once() -> None:
    first, second = rows_of(forked(), temperature=1.0)
    assert first.tokens[first.target].tolist() == [3] * 5
    assert second.tokens[second.target].tolist() == [5, 6]
    assert second.tokens[:4].tolist() == first.tokens[:4].tolist(), "the copy is input"
    assert forked().response_tokens == first.count + second.count


def test_a_branch_of_another_trajectory_trains_its_copy() -> None:
    child = forked().sequences[1]
    alone = trajectory("u", "g", 1.0, [], sequences=(child,))
    (row,) = rows_of(alone, temperature=1.0)
    assert row.count == 4
    assert alone.response_tokens == 4


def test_a_copy_inside_a_trajectory_has_no_part_in_the_mean_of_branches() -> None:
    other = trajectory("u", "g", 0.0, [Step()])
    both = [group("g", forked(), other)]
    assert credited(both, credit=Credit(branches="hard")) == credited(both)


def test_a_sequence_of_weight_0_has_no_row_and_old_records_have_weight_1() -> None:
    assert [row.sequence for row in rows_of(forked(weight=0.0), temperature=1.0)] == [0]
    assert [row.copies for row in rows_of(forked(weight=0.5), temperature=1.0)] == [1.0, 0.5]
    for weight in (1.0, 0.0, 0.25):
        message = trajectory_to_proto(forked(weight=weight))
        assert message.sequences[1].HasField("weight") == (weight != 1)
        assert trajectory_from_proto(message).sequences[1].weight == weight


def rows(*names: str) -> list[Row]:
    """Two rows of each trajectory, with an advantage everywhere."""
    return [
        replace(row, advantage=row.advantage + 1)
        for name in names
        for row in rows_of(forked(name), temperature=1.0)
    ]


def test_all_rows_of_a_trajectory_are_in_one_optimizer_step() -> None:
    parts = split(rows(*"abcde"), 2)
    assert [[row.trajectory for row in part] for part in parts] == [list("aaccee"), list("bbdd")]


def test_a_broken_row_takes_its_trajectory_along() -> None:
    mine = rows("a", "b")
    mine[1].advantage[:] = float("nan")
    part = MiniBatch(mine, counts_of(mine, drop_silent=False), Loss(), all_rows=False)
    assert part.drop_unreadable(part.forwarded()) == ["a", "a"]
    assert [row.trajectory for row in part.weighed()] == ["b", "b"]


@pytest.mark.parametrize(
    ("unit", "weights"), [("trajectory", [1 / 7] * 2), ("sequence", [1 / 10, 1 / 4])]
)
def test_the_recipe_sets_the_unit_of_means(unit: str, weights: list[float]) -> None:
    mine = rows("a")
    loss = Loss.model_validate({"aggregation": "seq-mean-token-mean", "unit": unit})
    part = MiniBatch(mine, counts_of(mine, drop_silent=False), loss, all_rows=False)
    assert [row.weight for row in part.weighed()] == pytest.approx(weights)
    assert ("single sequences" in loss.summary) == (unit == "sequence")


def test_sequences_copies_and_forks_have_metrics() -> None:
    plain = trajectory("u", "g", 0.0, [Step(tokens=2, seen=0)])
    assert sequence_stats([forked(), plain]) == {
        "sequences": 1.5,
        "shared_prefix_fraction": 4 / (9 + 6 + 4),
        "forks/rewrite": 0.5,
    }
