"""What the policy writes of calls, and what it reads of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.core.text.codec import HuggingFaceCodec
from engine.errors import TaskUnfit
from tests.integration.engine.conftest import MakeWorld
from tests.support.dialogue import by_turn
from tests.support.families import write_family
from tests.support.recipes import ONE
from tests.support.tool_sessions import client
from tests.support.tools import JSON_CALL, ToolDouble, text
from toolwright.common.v1 import reasons_pb2 as reasons
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
    trajectory = await here.trajectory()
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


async def test_without_any_tool_a_call_is_a_mistake(world: MakeWorld) -> None:
    here = await world(run=ONE, task=CHAT)
    here.sampler._script = by_turn(here.codec, chat('{"name": "add"}'), mark="<|im_start|>tool")
    group = await here.group(tools=None)
    assert group.members[0].calls[0].outcome.invalid_reason == "there is no tool 'add', only none"
    assert here.tools.opened == []


async def test_a_tool_that_took_its_session_with_it_ends_the_trajectory(world: MakeWorld) -> None:
    """It ran and failed, by the policy's own doing: that is shown, kept, and not tried again."""
    kind = reasons.ToolErrorKind.TOOL_ERROR_KIND_CRASHED
    error = pb.ToolError(kind=kind, message="the interpreter died", session_lost=True)
    here = await world(tools=ToolDouble(lambda _r: text("gone", error=error)), run=ONE)
    trajectory = await here.trajectory()
    assert (trajectory.stop_reason, trajectory.attempt) == (StopReason.SESSION_LOST, 0)
    assert here.texts(trajectory)[-1] == ("tool", "<result> gone</result>")
    assert not trajectory.masked


async def test_metadata_that_no_tool_can_get_is_named() -> None:
    double = ToolDouble()
    async with client(double) as tools:
        with pytest.raises(TaskUnfit, match="task odd: its metadata is not JSON-like"):
            await tools.open_session("s", Task(id="odd", metadata={"when": object()}))
        assert not double.opened


TAGGED = '<tool_call>\n{"name": "python", "arguments": {"code": "1"}}\n</tool_call>'
LIMITS = {"response": 1000, "model": 4000}
SAID = 'line1\nsays "hi"'


async def test_tool_text_is_escaped_in_templates_of_json(world: MakeWorld, tmp_path: Path) -> None:
    policy = write_family(tmp_path / "llama", "llama_3")
    codec = HuggingFaceCodec(policy)
    here = await world(
        policy=policy,
        script=by_turn(codec, [TAGGED, "It is <answer> 2</answer><|eot_id|>"], mark="ipython<|"),
        tools=ToolDouble(run=lambda _call: text(SAID)),
        run=ONE,
        task={"protocol": "engine.api:Chat", "limits": LIMITS},
    )
    async with here.engine() as run:
        ((trajectory,),) = [group.members for group in await run.learner.lease(run.version)]
    (observed,) = [s for s in trajectory.sequences[0].segments if s.author is Author.TOOL]
    written = codec.decode(observed.token_ids)
    assert '"line1\\nsays \\"hi\\""<|eot_id|>' in written
    assert trajectory.metadata["final_text"] == "It is <answer> 2</answer>"
    assert trajectory.reward == 1.0


@pytest.mark.parametrize("end", ["<|im_end|>", "<|endoftext|>"])
async def test_a_turn_ends_by_token_and_by_eos(world: MakeWorld, tmp_path: Path, end: str) -> None:
    policy = write_family(tmp_path / "qwen", "qwen2_5", eos="<|endoftext|>")
    here = await world(
        policy=policy,
        script=by_turn(HuggingFaceCodec(policy), [f"<answer> 2</answer>{end} and on"]),
        run=ONE,
        task={"limits": LIMITS},
    )
    async with here.engine() as run:
        ((trajectory,),) = [group.members for group in await run.learner.lease(run.version)]
    assert trajectory.stop_reason is StopReason.ANSWERED
    assert trajectory.metadata["final_text"] == "<answer> 2</answer>"
    (action,) = [s for s in trajectory.sequences[0].segments if s.author is Author.MODEL]
    assert here.codec.decode(action.token_ids) == f"<answer> 2</answer>{end}"
