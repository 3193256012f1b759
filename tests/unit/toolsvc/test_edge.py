"""The one module that knows protobuf."""

import pytest
from google.protobuf.duration_pb2 import Duration

from toolsvc.edge.wire import (
    call_from_proto,
    fill_result,
    fork_from_proto,
    open_from_proto,
    reason_number,
)
from toolsvc.errors import Reason
from toolsvc.types import Media, Recorded, Result, Text, ToolError
from toolwright.rpc.errors import ServiceError
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.types import Author, BlobRef, ToolErrorKind


def sent(recorded: Recorded) -> pb.CallResult:
    message = pb.CallResult()
    fill_result(message, recorded)
    return pb.CallResult.FromString(message.SerializeToString())


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

    def digest(parent: str = "s", **more: object) -> bytes:
        fields: dict[str, object] = {"session_id": "c", "owner": "o", **more}
        wish = pb.OpenSessionRequest(**fields)  # type: ignore[arg-type]
        return fork_from_proto(pb.ForkSessionRequest(session_id=parent, open=wish)).child.digest

    assert digest() == digest(lease=Duration(seconds=5), queue_limit=Duration(seconds=6))
    alone = open_from_proto(pb.OpenSessionRequest(session_id="c", owner="o")).digest
    assert len({digest(), digest("t"), digest(owner="p"), digest(tools=["x"]), alone}) == 5


def test_empty_arguments_are_not_missing_arguments() -> None:
    assert call_from_proto(request()).arguments is None
    with_arguments = request()
    with_arguments.arguments.SetInParent()
    assert call_from_proto(with_arguments).arguments == {}


def test_a_result_with_everything() -> None:
    result = Result(
        observation=(Text(text="a"), Media(media_type="image/png", data=b"x")),
        done=True,
        reward=0.5,
        metrics={"hits": 2.0},
        error=ToolError(kind=ToolErrorKind.TIMEOUT, message="late", session_lost=True),
        truncated=True,
        author=Author.SYSTEM,
        token_budget=4000,
    )
    recorded = Recorded(result=result, tool="t", queued=0.25, run=1.5, isolation="full")
    answer = sent(recorded)
    assert answer.observation[0].text == "a"
    assert answer.observation[1].media.data == b"x"
    assert (answer.done, answer.reward, answer.truncated, answer.valid) == (True, 0.5, True, True)
    assert answer.error.session_lost
    assert answer.error.kind == ToolErrorKind.TIMEOUT
    assert answer.run.ToTimedelta().total_seconds() == 1.5
    assert answer.isolation == "full"
    assert (answer.author, answer.token_budget) == (Author.SYSTEM, 4000)


@pytest.mark.parametrize(
    ("parent", "child", "field"),
    [
        ("", pb.OpenSessionRequest(session_id="c", owner="o"), "session_id"),
        ("s", None, "open"),
        ("s", pb.OpenSessionRequest(owner="o"), "session_id"),
        ("s", pb.OpenSessionRequest(session_id="c"), "owner"),
    ],
)
def test_a_fork_that_makes_no_sense_names_the_field(
    parent: str, child: pb.OpenSessionRequest | None, field: str
) -> None:
    with pytest.raises(ServiceError) as failure:
        fork_from_proto(pb.ForkSessionRequest(session_id=parent, open=child))
    assert (failure.value.reason_name, failure.value.subject) == ("INVALID_REQUEST", field)


def test_a_long_text_travels_in_parts_below_the_inline_bound() -> None:
    text = "\N{GRINNING FACE}" * 100_000
    result = Result(observation=(Text(text=text),))
    parts = sent(Recorded(result=result, tool="t", queued=0, run=0, isolation="")).observation
    assert "".join(part.text for part in parts) == text
    assert max(len(part.text.encode()) for part in parts) <= 256 << 10


def test_an_empty_text_is_a_part_and_what_is_not_given_travels_as_nothing() -> None:
    result = Result(observation=(Text(text=""),))
    answer = sent(Recorded(result=result, tool="t", queued=0, run=0, isolation=""))
    assert [part.WhichOneof("content") for part in answer.observation] == ["text"]
    assert (answer.author, answer.token_budget) == (0, 0)
    assert not answer.HasField("reward")
    assert not answer.HasField("error")


def test_other_blobs_make_another_session() -> None:
    request = pb.OpenSessionRequest(session_id="s", owner="o")
    request.blobs.add(sha256="0" * 64, media_type="image/png", size=3)
    opening = open_from_proto(request)
    assert opening.blobs == (BlobRef(sha256="0" * 64, media_type="image/png", size=3),)
    bare = open_from_proto(pb.OpenSessionRequest(session_id="s", owner="o"))
    assert bare.digest != opening.digest
