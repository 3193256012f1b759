"""Old segments lose their loss at the lease; the stored group stays as it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.serving.delivery.freshness import stale_versions, without_stale
from engine.serving.journal.journal import StoredGroup
from tests.support.finished_trajectories import observed, trajectory
from tests.support.finished_trajectories import wrote as said
from toolwright.common.v1 import trajectory_pb2
from toolwright.types import (
    Segment,
    Status,
    StopReason,
    Trajectory,
    WeightVersion,
)
from toolwright.wire import content_hash, serialize, trajectory_from_proto, trajectory_to_proto


def v(text: str) -> WeightVersion:
    return WeightVersion.parse(text)


def wrote(version: str, tokens: int = 2, *, trainable: bool = True) -> Segment:
    return said(tokens, weight_version=v(version), trainable=trainable)


TOOL = observed(2)


def member(*segments: Segment, **changes: Any) -> Trajectory:
    return trajectory(0, TOOL, *segments, TOOL, reward=1.0, **changes)


def stored(*members: Trajectory) -> StoredGroup:
    raw = tuple(serialize(trajectory_to_proto(one)) for one in members)
    versions = dict.fromkeys(version for one in members for version in one.weight_versions)
    return StoredGroup(
        sequence=3, id="g", hash=content_hash(raw), versions=tuple(versions), members=raw
    )


def sent(
    group: StoredGroup,
    at: str,
    bound: int = 1,
    forks: Mapping[str, WeightVersion] | None = None,
) -> tuple[StoredGroup, list[Trajectory], int] | None:
    """The group that is sent, its members, tokens that lost their loss."""
    found = without_stale(group, stale_versions(group.versions, v(at), forks or {}, bound))
    if found is None:
        return None
    members = [
        trajectory_from_proto(trajectory_pb2.Trajectory.FromString(raw))
        for raw in found.group.members
    ]
    return found.group, members, found.old_tokens


def mask(trajectory: Trajectory) -> tuple[bool, ...]:
    return tuple(s.trainable for q in trajectory.sequences for s in q.segments)


def test_a_trajectory_over_more_publishes_than_the_bound_keeps_its_fresh_turns() -> None:
    spanning = member(wrote("a.0"), TOOL, wrote("a.1"), TOOL, wrote("a.2", 3))
    group = stored(spanning, member(wrote("a.2")))
    found = sent(group, "a.2", bound=1)
    assert found is not None
    changed, (first, second), tokens = found
    assert mask(first) == (False, False, False, True, False, True, False)
    assert tokens == 2
    assert changed.members[1] == group.members[1]
    assert changed.hash == content_hash(changed.members) != group.hash
    # Nothing but the flag is different: ids, log-probs, versions, reward, why it ended.
    (sequence,) = first.sequences
    segments = list(sequence.segments)
    segments[1] = replace(segments[1], trainable=True)
    assert replace(first, sequences=(replace(sequence, segments=tuple(segments)),)) == spanning
    assert (second.reward, first.stop_reason) == (1.0, StopReason.ANSWERED)


def test_a_group_within_the_bound_is_sent_without_being_parsed() -> None:
    unreadable = StoredGroup(
        sequence=1, id="g", hash="h", versions=(v("a.4"), v("a.5")), members=(b"\xff\xff",)
    )
    found = without_stale(unreadable, stale_versions(unreadable.versions, v("a.5"), {}, 1))
    assert found is not None
    assert found.group is unreadable


def test_only_a_group_without_any_fresh_trainable_segment_is_dropped() -> None:
    assert sent(stored(member(wrote("a.0")), member(wrote("a.1"))), "a.3") is None
    one_left = sent(stored(member(wrote("a.0")), member(wrote("a.2", 1))), "a.3")
    assert one_left is not None
    assert [any(mask(one)) for one in one_left[1]] == [False, True]
    # Of what the new version wrote nothing carries loss: forced tokens, no tokens, a masked member.
    assert sent(stored(member(wrote("a.0"), wrote("a.3", trainable=False))), "a.3") is None
    assert sent(stored(member(wrote("a.0"), wrote("a.3", 0))), "a.3") is None
    assert sent(stored(member(wrote("a.0")), member(wrote("a.3"), masked=True)), "a.3") is None


def test_an_errored_member_in_a_group_with_old_segments_is_harmless() -> None:
    lost = member(status=Status.ERRORED, sequences=(), masked=True, outside_baseline=True)
    found = sent(stored(lost, member(wrote("a.0"), wrote("a.3"))), "a.3")
    assert found is not None
    assert found[1][0] == lost


@pytest.mark.parametrize(
    ("wrote_at", "at", "bound", "old"),
    [
        ("a.4", "a.3", 0, True),  # newer than the learner's own is as far away
        ("a.5", "b.4", 2, True),  # two steps back to the fork and one on
        ("a.5", "b.4", 3, False),
        ("a.5", "c.5", 3, True),  # over two forks
        ("taken-back.1", "a.3", 99, True),  # never published
    ],
)
def test_age_is_counted_over_forks(wrote_at: str, at: str, bound: int, old: bool) -> None:
    forks = {"b": v("a.3"), "c": v("b.4")}
    assert bool(stale_versions([v(wrote_at)], v(at), forks, bound)) is old


@given(
    st.lists(st.lists(st.integers(0, 6), max_size=4), min_size=1, max_size=4),
    st.integers(0, 6),
    st.integers(0, 3),
)
def test_a_token_that_is_sent_with_loss_is_never_older_than_the_bound(
    steps: list[list[int]], now: int, bound: int
) -> None:
    group = stored(*(member(*(wrote(f"a.{step}") for step in own)) for own in steps))
    found = sent(group, f"a.{now}", bound)
    fresh = [step for own in steps for step in own if abs(now - step) <= bound]
    all_fresh = len(fresh) == sum(map(len, steps))
    assert (found is None) == (not fresh and not all_fresh)
    if found is not None:
        left = [
            segment.weight_version.step
            for one in found[1]
            for sequence in one.sequences
            for segment in sequence.segments
            if segment.trainable and segment.weight_version
        ]
        assert left == fresh
