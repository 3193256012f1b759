"""JSON-like data in protobuf: what goes in comes out, whatever its integers, or is refused."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from google.protobuf.struct_pb2 import Struct
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.protocols.actions import read_json_call
from toolsvc.edge.wire import call_from_proto, open_from_proto
from toolwright import wire
from toolwright.json_data import (
    INEXACT,
    MOST_DEPTH,
    canonical,
    check_depth,
    exact_json,
    mapping,
    struct,
)
from toolwright.rollout.v1 import rollout_pb2
from toolwright.rpc.errors import ServiceError
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.types import Event, Status, StopReason, Task, Trajectory

LARGE = (2**53, 2**53 + 1, -(2**53) - 1, 2**63, 2**64 + 1, 10**400, -(10**400))
INTEGERS = st.integers() | st.sampled_from(LARGE) | st.integers(2**53 - 2, 2**53 + 2)
JSON = st.recursive(
    st.none() | st.booleans() | INTEGERS | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)
OBJECT = st.dictionaries(st.text(max_size=3), JSON, max_size=3)


def kinds(data: Any) -> Any:
    """The data with the types of their numbers; a whole double is an int again, as ever."""
    if isinstance(data, dict):
        return {key: kinds(value) for key, value in data.items()}
    if isinstance(data, list):
        return [kinds(value) for value in data]
    whole = isinstance(data, float) and data.is_integer() and abs(data) < INEXACT
    return (int, int(data)) if whole else (type(data), data)


@settings(max_examples=200)
@given(data=OBJECT)
def test_what_goes_in_comes_out(data: dict[str, Any]) -> None:
    sent = Struct.FromString(struct(data).SerializeToString())
    assert kinds(mapping(sent, exact_json(data))) == kinds(data)


@pytest.mark.parametrize("number", LARGE, ids=[str(i) for i in range(len(LARGE))])
def test_integers_of_any_size_arrive_as_they_were_sent(number: int) -> None:
    data = {"id": number, "inside": [{"a": number}]}
    call = pb.CallToolRequest(
        session_id="s",
        call_id="c",
        arguments=struct(data),
        arguments_json=exact_json(data),
        metadata=struct(data),
        metadata_json=exact_json(data),
    )
    read = call_from_proto(call)
    assert read.arguments == read.metadata == data
    assert type(read.arguments["id"]) is int
    opening = pb.OpenSessionRequest(
        session_id="s", owner="o", metadata=struct(data), metadata_json=exact_json(data)
    )
    assert open_from_proto(opening).metadata == data


def test_who_reads_the_struct_alone_has_the_nearest_double() -> None:
    read = mapping(struct({"a": 2**53 + 1, "b": 10**400}))
    assert read == {"a": float(2**53), "b": math.inf}


@pytest.mark.parametrize(
    "text", ["{", "[1]", "5", '"x"', "null", '{"a": "\\ud800"}', "[" * 100_000, '{"a":' * 100_000]
)
def test_text_that_is_no_object_is_refused(text: str) -> None:
    call = pb.CallToolRequest(session_id="s", call_id="c", metadata_json=text)
    with pytest.raises(ServiceError, match="metadata_json is"):
        call_from_proto(call)
    opening = pb.OpenSessionRequest(session_id="s", owner="o", metadata_json=text)
    with pytest.raises(ServiceError, match="metadata_json is"):
        open_from_proto(opening)


def nested(depth: int, *, lists: bool = False) -> dict[str, Any]:
    data: Any = 1
    for _ in range(depth - 1):
        data = [data] if lists else {"a": data}
    return {"a": data}


@pytest.mark.parametrize("lists", [True, False])
def test_what_can_be_written_can_be_read_again_inside_of_every_message(lists: bool) -> None:
    deepest = nested(MOST_DEPTH, lists=lists)
    trajectory = Trajectory(
        id="a",
        group_id="g",
        task=Task(id="q", metadata=deepest, messages=(nested(MOST_DEPTH),)),
        sequences=(),
        status=Status.COMPLETED,
        stop_reason=StopReason.ANSWERED,
        events=(Event(kind="e", turn=0, data=deepest),),
    )
    message = rollout_pb2.LeaseGroupsResponse(trajectory=wire.trajectory_to_proto(trajectory))
    read = rollout_pb2.LeaseGroupsResponse.FromString(message.SerializeToString())
    assert wire.trajectory_from_proto(read.trajectory) == trajectory
    for depth in (MOST_DEPTH + 1, 200, 5000):
        with pytest.raises(ValueError, match="levels deep"):
            struct(nested(depth, lists=lists))
        with pytest.raises(ValueError, match="levels deep"):
            check_depth(nested(depth, lists=lists))


@pytest.mark.parametrize("value", [b"x", object(), {1: 2}, {"a": {3: 4}}, float, {1}])
def test_what_is_no_json_is_a_type_error_or_a_value_error(value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        struct(value if isinstance(value, dict) else {"a": value})


@pytest.mark.parametrize("depth", [MOST_DEPTH, 60, 5000])
def test_a_call_that_no_message_could_hold_is_the_policy_s_mistake(depth: int) -> None:
    arguments = json.dumps(1) if depth > 1000 else json.dumps(nested(depth))
    body = '{"a":' * depth + "1" + "}" * depth if depth > 1000 else arguments
    text = f'<tool_call>{{"name": "t", "arguments": {body}}}</tool_call>'
    call = read_json_call(text, "<tool_call>", "</tool_call>")
    assert "not JSON: nested" in call.invalid_reason or "recursion" in call.invalid_reason


def test_equal_data_have_one_spelling() -> None:
    one = canonical({"b": [1, {"y": 2.0, "x": "\u00e9"}], "a": True})
    assert canonical({"a": True, "b": (1.0, {"x": "\u00e9", "y": 2})}) == one
    different = [1, 1.5, "1", True, [1], {"1": 1}, None, 2**53, 2.0**60, math.nan, math.inf]
    assert len({canonical(data) for data in different}) == len(different)
