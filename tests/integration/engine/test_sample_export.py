"""`engine sample --export`: trajectories as plain messages for other trainers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from bench.scripted import ScriptRequest
from engine.core.protocols.chat import Chat
from engine.core.protocols.tagged import Tagged
from engine.core.tools.spec import spec
from engine.errors import StartupError
from tests.integration.engine.conftest import MakeWorld
from tests.support.collected import collect, kept
from tests.support.tools import JSON_CALL, ToolDouble, text
from toolwright.tool.v1 import tool_pb2

pytestmark = pytest.mark.quick

ADD = '<tool_call>\n{"name": "add", "arguments": {"a": %d}}\n</tool_call>'


async def test_the_export_tells_a_tagged_trajectory_as_messages(world: MakeWorld) -> None:
    here = await world()
    told = await collect(here, n=1, export=True)
    (line,) = (here.folder / "kept.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(line) == {
        "id": "s0000000-0",
        "messages": [
            {"role": "user", "content": "what is 0+1?"},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [
                    {
                        "id": "call_0_0",
                        "type": "function",
                        "function": {"name": "python", "arguments": '{"code": "1+1"}'},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "call_0_0", "content": "2"},
            {"role": "assistant", "content": "<answer> 2</answer>"},
        ],
    }
    assert told.splitlines()[-1] == str(here.folder / "kept.jsonl")


async def test_what_messages_cannot_tell_is_counted(world: MakeWorld) -> None:
    def script(_: ScriptRequest) -> Sequence[int]:
        return here.codec.encode("1+1</python>")

    here = await world(script=script)
    told = await collect(here, n=1, export=True)
    assert len(kept(here)) == 1
    assert (here.folder / "kept.jsonl").read_text(encoding="utf-8") == ""
    assert "without 1 that chat messages cannot hold: 1 an invalid call" in told


async def test_a_protocol_that_is_no_chat_is_not_exported(world: MakeWorld) -> None:
    here = await world()
    (here.folder / "mine.py").write_text("class Mine:\n    pass\n", encoding="utf-8")
    with pytest.raises(StartupError, match=r"--export jsonl: trajectories of \./mine\.py:Mine"):
        await collect(here, export=True, changes={"task": {"protocol": "./mine.py:Mine"}})


def parallel_add() -> Any:
    tool = tool_pb2.ToolDescriptor()
    tool.CopyFrom(JSON_CALL)
    tool.parallel_calls = True
    return tool


@pytest.mark.parametrize(
    ("replies", "options", "told"),
    [
        pytest.param(
            [f"let me see{ADD % 1}", "It is 2.<|im_end|>"],
            {},
            [("let me see", [1]), ("It is 2.", [])],
            id="one call",
        ),
        pytest.param(
            [f"{ADD % 1}\n{ADD % 2}<|im_end|>", "It is 2.<|im_end|>"],
            {"parallel": True},
            [("", [1, 2]), ("It is 2.", [])],
            id="two calls",
        ),
    ],
)
async def test_the_export_tells_a_chat_as_messages(
    world: MakeWorld, replies: list[str], options: dict[str, Any], told: list[Any]
) -> None:
    """And what it tells is rendered to the very ids of the trajectory, where the policy wrote as
    the protocol would."""

    def script(request: ScriptRequest) -> Sequence[int]:
        said = here.codec.decode(request.input_ids)
        return here.codec.encode(replies["<|im_start|>tool" in said])

    double = ToolDouble(
        lambda request: text(f"{request.arguments['a']:g} and one", tool="add"),
        tools=[parallel_add()],
    )
    task = {"protocol": "engine.api:Chat", "protocol_options": options}
    here = await world(script=script, tools=double, task=task)
    await collect(here, n=1, export=True)
    (line,) = (here.folder / "kept.jsonl").read_text(encoding="utf-8").splitlines()
    found = json.loads(line)
    assert [tool["function"]["name"] for tool in found["tools"]] == ["add"]
    messages = found["messages"]
    wrote = [one for one in messages if one["role"] == "assistant"]
    assert [
        (one["content"], [json.loads(c["function"]["arguments"])["a"] for c in calls])
        for one in wrote
        for calls in [one.get("tool_calls", [])]
    ] == told
    read = [(one["tool_call_id"], one["content"]) for one in messages if one["role"] == "tool"]
    assert read == [(f"call_0_{i}", f"{a} and one") for i, a in enumerate(told[0][1])]
    if not options:
        (trajectory,) = kept(here)
        runs = Chat().demonstration(messages, here.codec, [spec(parallel_add(), "python")])
        ids = [token for _, run in runs for token in run]
        assert ids == list(trajectory.sequences[0].token_ids)


async def test_a_tool_with_a_tag_that_is_called_by_its_name_is_exported(world: MakeWorld) -> None:
    call = '<tool_call>{"name": "python", "arguments": {"code": "1+1"}}</tool_call>'

    def script(request: ScriptRequest) -> Sequence[int]:
        said = here.codec.decode(request.input_ids)
        return here.codec.encode("2<|im_end|>" if "<|im_start|>tool" in said else call)

    here = await world(script=script, task={"protocol": "engine.api:Chat"})
    await collect(here, n=1, export=True)
    messages = json.loads((here.folder / "kept.jsonl").read_text(encoding="utf-8"))["messages"]
    (told,) = (one for one in messages if one.get("tool_calls"))
    (made,) = told["tool_calls"]
    assert json.loads(made["function"]["arguments"]) == {"code": "1+1"}
    assert told["content"] == ""


async def test_an_exported_tagged_conversation_renders_to_the_same_ids(world: MakeWorld) -> None:
    here = await world()
    await collect(here, n=1, export=True)
    (trajectory,) = kept(here)
    found = json.loads((here.folder / "kept.jsonl").read_text(encoding="utf-8"))
    runs = Tagged().demonstration(found["messages"], here.codec)
    ids = [token for _, run in runs for token in run]
    assert ids == list(trajectory.sequences[0].token_ids)


async def test_text_between_calls_is_not_dropped_silently(world: MakeWorld) -> None:
    reply = f"{ADD % 1} and then {ADD % 2}<|im_end|>"

    def script(request: ScriptRequest) -> Sequence[int]:
        said = here.codec.decode(request.input_ids)
        return here.codec.encode("2.<|im_end|>" if "<|im_start|>tool" in said else reply)

    double = ToolDouble(lambda _: text("2", tool="add"), tools=[parallel_add()])
    task = {"protocol": "engine.api:Chat", "protocol_options": {"parallel": True}}
    here = await world(script=script, tools=double, task=task)
    told = await collect(here, n=1, export=True)
    assert "without 1 that chat messages cannot hold: 1 text between or after calls" in told
