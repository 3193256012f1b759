"""What the engine recorded arrives in the learner unchanged, also what it does not use yet."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.serving.delivery.freshness import without_stale
from engine.serving.journal.journal import StoredGroup
from toolwright.common.v1 import trajectory_pb2
from toolwright.rpc.leased_groups import BrokenGroup, closed_group
from toolwright.types import (
    Author,
    Event,
    RewardPart,
    Segment,
    Sequence,
    Status,
    StopReason,
    Task,
    Trajectory,
    WeightVersion,
)
from toolwright.wire import content_hash, serialize, trajectory_to_proto

V2, V5 = WeightVersion(lineage="a", step=2), WeightVersion(lineage="a", step=5)


def wrote(version: WeightVersion, turn: int) -> Segment:
    return Segment(
        author=Author.MODEL,
        token_ids=(3, 4),
        turn=turn,
        logprobs=(-0.25, -1.5),
        weight_version=version,
        trainable=True,
    )


RICH = Trajectory(
    id="g-1",
    group_id="g",
    index=1,
    task=Task(id="q"),
    sequences=(Sequence(id="g-1.0", segments=(wrote(V2, 0), wrote(V5, 1))),),
    status=Status.TRUNCATED,
    stop_reason=StopReason.MAX_TURNS,
    reward=0.75,
    reward_parts=(
        RewardPart(name="answer", value=1.0),
        RewardPart(name="step", value=-0.25, turn=0),
        RewardPart(name="step", value=0.0, turn=1),
    ),
    events=(Event(kind="plan_parsed", turn=1, data={"steps": ["a", "b"]}),),
    anchors={0: ("search", "python"), 1: ()},
    masked=True,
    outside_baseline=True,
)
PLAIN = replace(
    RICH, id="g-0", index=0, anchors={}, reward_parts=(), masked=False, outside_baseline=False
)


def arrived(members: tuple[bytes, ...], digest: str) -> tuple[Trajectory, ...]:
    """The learner's records of the bytes that it was sent."""
    info = trajectory_pb2.GroupInfo(
        id="g", sequence_number=3, content_hash=digest, members=len(members)
    )
    return closed_group(info, list(members)).trajectories


def stored() -> StoredGroup:
    raw = tuple(serialize(trajectory_to_proto(one)) for one in (PLAIN, RICH))
    return StoredGroup(sequence=3, id="g", hash=content_hash(raw), versions=(V2, V5), members=raw)


def test_parts_of_turns_anchors_and_baseline_flags_arrive_as_they_were_recorded() -> None:
    group = stored()
    assert arrived(group.members, group.hash) == (PLAIN, RICH)


def test_they_arrive_as_well_where_old_segments_lost_their_loss() -> None:
    found = without_stale(stored(), frozenset({V2}))
    assert found is not None
    plain, rich = arrived(found.group.members, found.group.hash)
    for before, after in ((PLAIN, plain), (RICH, rich)):
        assert replace(after, sequences=before.sequences) == before
        assert [s.trainable for s in after.sequences[0].segments] == [False, True]


def test_a_server_may_send_the_fields_of_a_member_in_any_order() -> None:
    group = stored()
    last = trajectory_pb2.Trajectory(tokenizer_hash="t").SerializeToString()
    moved = replace(PLAIN, tokenizer_hash="t")
    raw = serialize(trajectory_to_proto(moved)).replace(last, b"")
    members = (last + raw, group.members[1])
    digest = content_hash([serialize(trajectory_to_proto(moved)), group.members[1]])
    assert arrived(members, digest) == (moved, RICH)


def test_bytes_that_are_no_member_end_the_lease_with_a_message() -> None:
    with pytest.raises(BrokenGroup, match="hash"):
        arrived((b"\xff",), stored().hash)
