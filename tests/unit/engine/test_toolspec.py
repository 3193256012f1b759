"""What a tool service's messages mean to the engine."""

from __future__ import annotations

import pytest
from google.protobuf.duration_pb2 import Duration

from engine.tools.calls import outcome
from engine.tools.spec import spec
from tests.support.tools import JSON_CALL, PYTHON
from toolwright.common.v1 import media_pb2
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.types import ToolErrorKind


def test_a_tagged_tool() -> None:
    found = spec(PYTHON, "service")
    assert (found.name, found.service, found.stop_strings) == ("python", "service", ("</python>",))
    assert (found.open_tag, found.close_tag, found.argument) == ("<python>", "</python>", "code")
    assert found.tagged
    assert not found.json_call


def test_a_tool_with_json_calls() -> None:
    descriptor = pb.ToolDescriptor()
    descriptor.CopyFrom(JSON_CALL)
    descriptor.arguments_schema.update({"type": "object"})
    found = spec(descriptor, "s")
    assert found.json_call
    assert not found.tagged
    assert found.arguments_schema == {"type": "object"}
    assert (found.open_tag, found.close_tag) == ("<tool_call>", "</tool_call>")


@pytest.mark.parametrize("format_", [pb.ActionFormat(raw=pb.RawFormat()), pb.ActionFormat()])
def test_a_tool_whose_format_only_the_service_knows(format_: pb.ActionFormat) -> None:
    found = spec(pb.ToolDescriptor(name="x", stop_strings=["\n\n"], action_format=format_), "s")
    assert (found.tagged, found.json_call, found.close_tag) == (False, False, "")


def test_a_result() -> None:
    found = outcome(
        pb.CallResult(
            observation=[
                pb.ObservationPart(text="a"),
                pb.ObservationPart(media=pb.InlineMedia(media_type="image/png", data=b"x")),
                pb.ObservationPart(blob=media_pb2.BlobRef(media_type="video/mp4")),
                pb.ObservationPart(text="b"),
            ],
            valid=True,
            done=True,
            reward=0.0,
            metrics={"x": 1.5},
            queued=Duration(nanos=500_000_000),
            run=Duration(seconds=2),
            truncated=True,
            isolation="full",
            tool="python",
            new_tools=[PYTHON],
        ),
        "made",
    )
    assert found.text == "a[image/png][video/mp4]b"
    assert (found.valid, found.done, found.reward) == (True, True, 0.0)
    assert (found.error, found.session_lost) == (ToolErrorKind.NONE, False)
    assert (found.queued_s, found.run_s, found.truncated) == (0.5, 2.0, True)
    assert (found.isolation, found.tool, found.metrics) == ("full", "python", {"x": 1.5})
    assert found.new_tools == (spec(PYTHON, "made"),)


def test_no_reward_is_none() -> None:
    assert outcome(pb.CallResult(), "s").reward is None


def test_a_failure_is_shown_by_its_text_else_by_its_message() -> None:
    error = pb.ToolError(
        kind=reasons.ToolErrorKind.TOOL_ERROR_KIND_EXCEPTION, message="m", session_lost=True
    )
    found = outcome(pb.CallResult(error=error), "s")
    assert (found.text, found.error, found.session_lost) == ("m", ToolErrorKind.EXCEPTION, True)
    shown = outcome(pb.CallResult(observation=[pb.ObservationPart(text="t")], error=error), "s")
    assert shown.text == "t"
