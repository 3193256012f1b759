"""What a tool service's messages mean to the engine."""

from __future__ import annotations

import pytest
from google.protobuf.duration_pb2 import Duration

from engine.core.tools.replies import reply_of
from engine.core.tools.spec import spec
from tests.support.tools import JSON_CALL, PYTHON
from toolwright.common.v1 import media_pb2
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.types import Author, BlobRef, ToolErrorKind


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


def test_a_result() -> None:
    result = pb.CallResult(
        valid=True, done=True, reward=0.0, metrics={"x": 1.5}, truncated=True, isolation="full",
        tool="python", new_tools=[PYTHON], queued=Duration(nanos=500_000_000),
        run=Duration(seconds=2),
        observation=[
            pb.ObservationPart(text="a"),
            pb.ObservationPart(media=pb.InlineMedia(media_type="image/png", data=b"x")),
            pb.ObservationPart(blob=media_pb2.BlobRef(media_type="video/mp4")),
            pb.ObservationPart(text="b"),
        ],
    )  # fmt: skip
    reply = reply_of(result, "made")
    found, (image,) = reply.outcome, reply.media
    assert found.observation == "a[image/png][video/mp4]b"
    assert found.parts == ("a", image.blob, BlobRef(sha256="", media_type="video/mp4", size=0), "b")
    assert image.data == b"x"
    assert (found.valid, found.done, found.reward) == (True, True, 0.0)
    assert (found.error, found.session_lost) == (ToolErrorKind.NONE, False)
    assert (found.queued_s, found.run_s, found.truncated) == (0.5, 2.0, True)
    assert (found.isolation, found.tool, found.metrics) == ("full", "python", {"x": 1.5})
    assert reply.new_tools == (spec(PYTHON, "made"),)
    assert reply_of(pb.CallResult(), "s").outcome.reward is None


def test_a_failure_is_shown_by_its_text_else_by_its_message() -> None:
    error = pb.ToolError(
        kind=reasons.ToolErrorKind.TOOL_ERROR_KIND_EXCEPTION, message="m", session_lost=True
    )
    found = reply_of(pb.CallResult(error=error), "s").outcome
    shown = (found.observation, found.error, found.session_lost)
    assert shown == ("m", ToolErrorKind.EXCEPTION, True)
    result = pb.CallResult(observation=[pb.ObservationPart(text="t")], error=error)
    assert reply_of(result, "s").outcome.observation == "t"


@pytest.mark.parametrize("said", [*map(int, Author), 0, 77])
def test_only_a_tool_a_memory_or_the_environment_speaks(said: int) -> None:
    """A service cannot put words into the policy's mouth."""
    result = pb.CallResult.FromString(pb.CallResult().SerializeToString() + bytes([14 << 3, said]))
    own = {int(Author.MEMORY): Author.MEMORY, int(Author.SYSTEM): Author.SYSTEM}
    assert reply_of(result, "s").outcome.author is own.get(said, Author.TOOL)


@pytest.mark.parametrize(
    ("said", "kept"), [(0, 0), (4000, 4000), (1 << 20, 1 << 20), (2**32 - 1, 0)]
)
def test_a_budget_that_no_context_has_is_the_recipe_s(said: int, kept: int) -> None:
    assert reply_of(pb.CallResult(token_budget=said), "s").outcome.token_budget == kept


def test_what_a_stranger_says_wrong_is_read_as_its_harmless_neighbour() -> None:
    error = pb.ToolError.FromString(bytes([1 << 3, 99]))
    endless = Duration(seconds=315_576_000_000)
    result = pb.CallResult(error=error, reward=float("nan"), run=endless)
    found = reply_of(result, "s").outcome
    assert (found.error, found.reward) == (ToolErrorKind.EXCEPTION, None)
    assert found.run_s == 315_576_000_000
