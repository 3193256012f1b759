"""What the policy writes of calls, and what it reads of them."""

from __future__ import annotations

import pytest

from engine.core.tools.services import ToolServices
from engine.errors import TaskUnfit
from tests.integration.engine.conftest import MakeWorld
from tests.support.dialogue import by_turn
from tests.support.recipes import ONE
from tests.support.tools import (
    JSON_CALL,
    ToolDouble,
    serving,
    text,
)
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.recipe import Tool
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.types import Author, StopReason, Task, ToolErrorKind

pytestmark = pytest.mark.quick


def chat(*calls: str) -> list[str]:
    return [*(f"<tool_call>{call}</tool_call>" for call in calls), "it is 2<|im_end|>"]


CHAT = {"protocol": "engine.api:Chat", "limits": {"action": 4000, "response": 9000}}
DEEP = '{"name": "add", "arguments": ' + '{"a":' * 200 + "1" + "}" * 201


@pytest.mark.parametrize(
    ("call", "shown", "kind"),
    [
        ('{"name": "add"', "the call is not JSON", ToolErrorKind.INVALID_ACTION),
        ('{"name": "sub"}', "there is no tool 'sub', only add", ToolErrorKind.UNKNOWN_TOOL),
        (
            '{"name": "add", "arguments": {"a": "\\ud800"}}',
            "the call is not JSON",
            ToolErrorKind.INVALID_ACTION,
        ),
        (DEEP, "the call is not JSON: nested", ToolErrorKind.INVALID_ACTION),
    ],
    ids=["not JSON", "unknown tool", "half a character", "deep"],
)
async def test_whatever_the_policy_writes_is_its_own_mistake(
    world: MakeWorld, call: str, shown: str, kind: ToolErrorKind
) -> None:
    """It is told what was wrong; the engine and the attempt go on."""
    here = await world(
        script=None, tools=ToolDouble(lambda _r: text("2"), tools=[JSON_CALL]), run=ONE, task=CHAT
    )
    here.sampler._script = by_turn(here.codec, chat(call), mark="<|im_start|>tool")
    async with here.engine() as run:
        (group,) = await run.learner.lease(await run.learner.version())
    (trajectory,) = group.members
    assert (trajectory.attempt, trajectory.stop_reason) == (0, StopReason.ANSWERED)
    (record,) = trajectory.calls
    assert (record.outcome.valid, record.outcome.error) == (False, kind)
    assert shown in record.outcome.invalid_reason
    (observation,) = [
        here.codec.decode(s.token_ids)
        for s in trajectory.sequences[0].segments
        if s.author is Author.TOOL
    ]
    assert observation.startswith("<|im_end|>\n<|im_start|>tool\n")
    assert shown in observation
    assert observation.endswith("<|im_end|>\n<|im_start|>assistant\n")
    assert here.tools.asked == []


async def test_a_function_call_in_chat(world: MakeWorld) -> None:
    here = await world(
        tools=ToolDouble(lambda r: text(str(r.arguments["a"] + r.arguments["b"]), tool="add"),
                         tools=[JSON_CALL]),
        run=ONE, task=CHAT,
    )  # fmt: skip
    call = '{"name": "add", "arguments": {"a": 1, "b": 1}}'
    here.sampler._script = by_turn(here.codec, chat(call), mark="<|im_start|>tool")
    async with here.engine() as run:
        (group,) = await run.learner.lease(await run.learner.version())
    (trajectory,) = group.members
    assert here.texts(trajectory)[1:] == [
        ("model", f"<tool_call>{call}</tool_call>"),
        ("tool", "<|im_end|>\n<|im_start|>tool\n2.0<|im_end|>\n<|im_start|>assistant\n"),
        ("model", "it is 2<|im_end|>"),
    ]
    assert here.tools.asked[0].tool == "add"
    assert trajectory.metadata["final_text"] == "it is 2"


async def test_without_any_tool_a_call_is_a_mistake(world: MakeWorld) -> None:
    here = await world(run=ONE, task=CHAT)
    here.sampler._script = by_turn(here.codec, chat('{"name": "add"}'), mark="<|im_start|>tool")
    async with here.engine(tools=None) as run:
        (group,) = await run.learner.lease(await run.learner.version())
    assert group.members[0].calls[0].outcome.invalid_reason == "there is no tool 'add', only none"
    assert here.tools.opened == []


async def test_a_tool_that_took_its_session_with_it_ends_the_trajectory(world: MakeWorld) -> None:
    """It ran and failed, by the policy's own doing: that is shown, kept, and not tried again."""
    kind = reasons.ToolErrorKind.TOOL_ERROR_KIND_CRASHED
    error = pb.ToolError(kind=kind, message="the interpreter died", session_lost=True)
    here = await world(tools=ToolDouble(lambda _r: text("gone", error=error)), run=ONE)
    async with here.engine() as run:
        (group,) = await run.learner.lease(await run.learner.version())
    (trajectory,) = group.members
    assert (trajectory.stop_reason, trajectory.attempt) == (StopReason.SESSION_LOST, 0)
    assert here.texts(trajectory)[-1] == ("tool", "<result> gone</result>")
    assert not trajectory.masked


async def test_metadata_that_no_tool_can_get_is_named() -> None:
    async with serving(ToolDouble()) as double:
        services = ToolServices({"python": Tool(service=double.address)}, "an owner")
        with pytest.raises(TaskUnfit, match="task odd: its metadata is not JSON-like"):
            await services.open_session("s", Task(id="odd", metadata={"when": object()}))
        await services.close()
        assert not double.opened
