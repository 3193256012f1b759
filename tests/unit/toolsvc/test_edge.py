"""The one module that knows protobuf."""

import pytest
from google.protobuf.duration_pb2 import Duration

from toolsvc.errors import Reason
from toolsvc.service import call_from_proto, open_from_proto, reason_number, result_to_proto
from toolsvc.types import Media, Recorded, Result, Text, ToolError
from toolwright.rpc.errors import ServiceError
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.types import ToolErrorKind


def request(**fields: object) -> pb.CallToolRequest:
    return pb.CallToolRequest(session_id="s", call_id="c", **fields)  # type: ignore[arg-type]


def test_every_reason_is_in_the_contract() -> None:
    for reason in Reason:
        assert reason_number(reason) > 0


def test_limits_are_no_part_of_the_digest_and_everything_else_is() -> None:
    plain = call_from_proto(request(action="a", turn=1))
    limits = request(
        action="a",
        turn=1,
        wait=Duration(seconds=1),
        queue_limit=Duration(seconds=2),
        run_limit=Duration(seconds=3),
    )
    assert call_from_proto(limits).digest == plain.digest
    for other in (
        request(action="b", turn=1),
        request(action="a", turn=2),
        request(action="a", turn=1, last_step=True),
        request(action="a", turn=1, tool="t"),
        request(action="a", turn=1, turns_left=3),
    ):
        assert call_from_proto(other).digest != plain.digest


def test_empty_arguments_are_not_missing_arguments() -> None:
    assert call_from_proto(request()).arguments is None
    with_arguments = request()
    with_arguments.arguments.SetInParent()
    assert call_from_proto(with_arguments).arguments == {}


@pytest.mark.parametrize(
    "broken",
    [
        pb.CallToolRequest(call_id="c"),
        pb.CallToolRequest(session_id="s"),
        pb.CallToolRequest(session_id="s", call_id="c", run_limit=Duration(seconds=-1)),
        pb.CallToolRequest(session_id="s", call_id="c", queue_limit=Duration()),
    ],
)
def test_a_request_that_makes_no_sense_names_the_field(broken: pb.CallToolRequest) -> None:
    with pytest.raises(ServiceError) as failure:
        call_from_proto(broken)
    assert failure.value.reason_name == "INVALID_REQUEST"
    assert failure.value.subject


def test_an_open_request_needs_an_owner() -> None:
    with pytest.raises(ServiceError, match="owner"):
        open_from_proto(pb.OpenSessionRequest(session_id="s"))


def test_a_result_with_everything() -> None:
    result = Result(
        observation=(Text(text="a\ud800"), Media(media_type="image/png", data=b"x")),
        done=True,
        reward=0.5,
        metrics={"hits": 2.0},
        error=ToolError(kind=ToolErrorKind.TIMEOUT, message="late", session_lost=True),
        truncated=True,
    )
    recorded = Recorded(result=result, tool="t", queued=0.25, run=1.5, isolation="full")
    sent = pb.CallResult.FromString(result_to_proto(recorded).SerializeToString())
    assert sent.observation[0].text == "a?"
    assert sent.observation[1].media.data == b"x"
    assert (sent.done, sent.reward, sent.truncated, sent.valid) == (True, 0.5, True, True)
    assert sent.error.session_lost
    assert sent.error.kind == ToolErrorKind.TIMEOUT
    assert sent.run.ToTimedelta().total_seconds() == 1.5
    assert sent.isolation == "full"


def test_no_reward_is_not_a_reward_of_zero() -> None:
    recorded = Recorded(result=Result(), tool="t", queued=0, run=0, isolation="")
    assert not result_to_proto(recorded).HasField("reward")
    assert not result_to_proto(recorded).HasField("error")
