"""The record survives the wire."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from hypothesis import given, settings

from tests.support import records
from toolwright import types as t
from toolwright import wire
from toolwright.common.v1 import trajectory_pb2 as pb

SIMPLE = t.Trajectory(
    id="a",
    group_id="g",
    task=t.Task(id="q", metadata={"number": 3}),
    sequences=(
        t.Sequence(
            id="a.0", segments=(t.Segment(author=t.Author.PROMPT, token_ids=t.ids([1, 2])),)
        ),
    ),
    status=t.Status.COMPLETED,
    stop_reason=t.StopReason.ANSWERED,
)


@settings(max_examples=25)
@given(records.trajectories)
def test_round_trip(trajectory: t.Trajectory) -> None:
    message = wire.trajectory_to_proto(trajectory)
    assert wire.trajectory_from_proto(message) == trajectory
    read = pb.Trajectory.FromString(wire.serialize(message))
    assert wire.trajectory_from_proto(read) == trajectory
    assert wire.serialize(read) == wire.serialize(message)


def test_every_field_of_the_record_has_its_twin() -> None:
    """A field that is added on one side only would be lost without a sound."""
    pairs: list[tuple[Any, Any]] = [
        (t.Trajectory, pb.Trajectory), (t.Task, pb.Task), (t.Sequence, pb.Sequence),
        (t.TrajectoryTimings, pb.TrajectoryTimings), (t.RewardPart, pb.RewardPart),
        (t.Event, pb.Event), (t.FinishReason, pb.FinishReason), (t.TokenTensor, pb.TokenTensor),
        (t.WeightVersion, pb.WeightVersion), (t.ActionTimings, pb.ActionTimings),
    ]  # fmt: skip
    for ours, theirs in pairs:
        exact = {name for name in theirs.DESCRIPTOR.fields_by_name if name.endswith("_json")}
        assert set(ours.__dataclass_fields__) == set(theirs.DESCRIPTOR.fields_by_name) - exact, ours
    call = {*t.CallRecord.__dataclass_fields__, *t.CallOutcome.__dataclass_fields__}
    stamps = {*t.CallTimings.__dataclass_fields__, "queued_s", "run_s"}
    assert call - {"outcome", "queued_s", "run_s"} == set(pb.CallRecord.DESCRIPTOR.fields_by_name)
    assert stamps == set(pb.CallTimings.DESCRIPTOR.fields_by_name)
    segment = set(pb.Segment.DESCRIPTOR.fields_by_name) - {"token_count"}
    assert set(t.Segment.__dataclass_fields__) == segment


@pytest.mark.parametrize(
    ("ours", "theirs", "prefix"),
    [
        (t.StopReason, "StopReason", "STOP_REASON_"),
        (t.ToolErrorKind, "ToolErrorKind", "TOOL_ERROR_KIND_"),
        (t.Author, "Author", "AUTHOR_"),
        (t.FinishKind, "FinishKind", "FINISH_KIND_"),
        (t.Status, "TrajectoryStatus", "TRAJECTORY_STATUS_"),
        (t.Purpose, "Purpose", "PURPOSE_"),
    ],
)
def test_enums_are_the_contract_s(
    ours: type[t.StopReason] | type[t.ToolErrorKind], theirs: str, prefix: str
) -> None:
    from toolwright.common.v1 import reasons_pb2

    module = pb if hasattr(pb, theirs) else reasons_pb2
    contract = {k.removeprefix(prefix): v for k, v in getattr(module, theirs).items() if v}
    assert {e.name: e.value for e in ours if e.value} == contract


def test_tokens_travel_as_little_endian_bytes() -> None:
    segment = t.Segment(
        author=t.Author.MODEL, token_ids=t.ids([1, 258]), logprobs=t.floats([-0.5, -1.0])
    )
    message = wire.segment_to_proto(segment)
    assert message.token_ids == b"\x01\x00\x00\x00\x02\x01\x00\x00"
    assert message.token_count == 2
    assert message.logprobs == b"\x00\x00\x00\xbf\x00\x00\x80\xbf"


def test_a_message_that_lies_about_its_tokens_is_refused() -> None:
    message = wire.segment_to_proto(t.Segment(author=t.Author.TOOL, token_ids=t.ids([1, 2])))
    message.token_count = 3
    with pytest.raises(ValueError, match="says 3 tokens and holds 2"):
        wire.segment_from_proto(message)
    model = wire.segment_to_proto(
        t.Segment(author=t.Author.MODEL, token_ids=t.ids([1, 2]), logprobs=t.floats([0.0, 0.0]))
    )
    model.logprobs = model.logprobs[:4]
    with pytest.raises(ValueError, match="2 tokens has 1 log-probs"):
        wire.segment_from_proto(model)


def test_a_message_with_an_unset_enum_is_no_trajectory() -> None:
    with pytest.raises(ValueError, match="Status"):
        wire.trajectory_from_proto(pb.Trajectory(task=pb.Task(purpose=pb.PURPOSE_TRAIN)))


def test_content_hash_knows_borders_and_order() -> None:
    assert wire.content_hash([b"ab", b"c"]) != wire.content_hash([b"a", b"bc"])
    assert wire.content_hash([b"a", b"b"]) != wire.content_hash([b"b", b"a"])
    assert wire.content_hash([b"x"]) == hashlib.sha256((1).to_bytes(8, "little") + b"x").hexdigest()


def test_a_map_s_order_does_not_change_the_bytes() -> None:
    one = wire.trajectory_to_proto(SIMPLE)
    other = pb.Trajectory.FromString(one.SerializeToString())
    for name in "abcdef":
        one.task.metadata[name] = 1
    for name in "fedcba":
        other.task.metadata[name] = 1
    assert wire.serialize(one) == wire.serialize(other)
