"""`engine sample --export`: trajectories as plain messages for other trainers, also where every
question has tools of its own, which a model makes and plays."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import pytest

from bench.scripted import ScriptRequest
from engine.core.protocols.chat import Chat
from engine.core.protocols.tagged import Tagged
from engine.core.tools.spec import spec
from engine.errors import StartupError
from engine.offline.enums import Dedupe, ExportLayout
from tests.integration.engine.conftest import MakeWorld
from tests.support.chat_endpoint import chat_endpoint
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
    # It renders to the very ids of the trajectory.
    (trajectory,) = kept(here)
    runs = Tagged().demonstration(json.loads(line)["messages"], here.codec)
    ids = [token for _, run in runs for token in run]
    assert ids == list(trajectory.sequences[0].token_ids)


@pytest.mark.parametrize(
    ("reply", "protocol", "why"),
    [
        ("1+1</python>", "Tagged", "1 an invalid call"),
        (f"{ADD % 1} and then {ADD % 2}<|im_end|>", "Chat", "1 text between or after calls"),
    ],
)
async def test_what_messages_cannot_tell_is_counted(
    world: MakeWorld, reply: str, protocol: str, why: str
) -> None:
    def script(request: ScriptRequest) -> Sequence[int]:
        said = here.codec.decode(request.input_ids)
        return here.codec.encode("2.<|im_end|>" if "<|im_start|>tool" in said else reply)

    parallel = protocol == "Chat"
    double = ToolDouble(lambda _: text("2", tool="add"), tools=[parallel_add()])
    here = await world(script=script, tools=double if parallel else None)
    options = {"protocol_options": {"parallel": True}} if parallel else {}
    changes = {"task": {"protocol": f"engine.api:{protocol}", **options}}
    said = await collect(here, n=1, export=True, changes=changes)
    assert len(kept(here)) == 1
    assert (here.folder / "kept.jsonl").read_text(encoding="utf-8") == ""
    assert f"without 1 that chat messages cannot hold: {why}" in said


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


TASKS = """
from toolwright.types import Task


def training(seed):
    for number in range(3):
        question = f"who wrote book {number}?"
        yield Task(
            id=f"t{number}",
            messages=({"role": "user", "content": question},),
            answers=("2",),
            metadata={"question": question},
        )
"""


def made_for(number: str) -> dict[str, Any]:
    """The tool of one question, as the model that makes it writes it."""
    parameters = {
        "type": "object",
        "properties": {f"book_{number}": {"type": "string", "description": "A title."}},
        "required": [f"book_{number}"],
        "additionalProperties": False,
    }
    function = {"name": f"author_{number}", "description": "Looks up.", "parameters": parameters}
    return {"type": "function", "function": function}


def plays(body: dict[str, Any]) -> str:
    """Makes the tool of a question, and answers for it."""
    said = json.dumps(body["messages"])
    if asked := re.search(r"who wrote book (\d)", said):
        return json.dumps([made_for(asked[1])])
    return "Ada <tool_call>"


CRITERIA = """
def named(trajectory):
    (tool,) = trajectory.metadata["tools"]
    number = trajectory.task.id.removeprefix("t")
    function = tool["function"]
    return function["name"] == f"author_{number}" and function["parameters"]["required"] != []


def second(trajectory):
    return trajectory.metadata["tools"][0]["function"]["name"] == "author_1"
"""


async def test_a_row_has_the_tools_of_its_own_session(world: MakeWorld) -> None:
    here = await world(task={"protocol": "engine.api:Chat"})
    (here.folder / "task.py").write_text(TASKS, encoding="utf-8")
    (here.folder / "criteria.py").write_text(CRITERIA, encoding="utf-8")

    def script(request: ScriptRequest) -> Sequence[int]:
        number = str(int(request.conversation.partition("-")[0].removeprefix("s")))
        if "<|im_start|>tool" in here.codec.decode(request.input_ids):
            return here.codec.encode("<answer> 2</answer><|im_end|>")
        call = {"name": f"author_{number}", "arguments": {f"book_{number}": "it"}}
        return here.codec.encode(f"Hm. <tool_call>{json.dumps(call)}</tool_call>")

    here.sampler._script = script
    async with chat_endpoint(plays) as endpoint:
        options = f"simulated.endpoint={endpoint.url}", "simulated.model=tiny"
        words = [word for one in options for word in ("--set", one)]
        here.tables["tools"] = {"world": {"serve": ["simulated:", *words]}}
        told = await collect(
            here,
            n=3,
            per_task=2,
            keep=("./criteria.py:named",),
            dedupe=Dedupe.CALLS,
            export=(ExportLayout.OPENAI, ExportLayout.HERMES),
        )
        one = await collect(
            here, n=3, keep=("./criteria.py:second",), output=here.folder / "second"
        )
    assert told.startswith("3 of 3 tasks: 3 kept, 3 duplicate")
    assert one.startswith("3 of 3 tasks: 1 kept")
    for layout in (ExportLayout.OPENAI, ExportLayout.HERMES):
        rows = [
            json.loads(line)
            for line in (here.folder / f"kept{layout.suffix}")
            .read_text(encoding="utf-8")
            .splitlines()
        ]
        assert [row["id"] for row in rows] == [one.id for one in kept(here)]
        for row in rows:
            number = str(int(row["id"].partition("-")[0].removeprefix("s")))
            (tool,) = row["tools"]
            assert tool == made_for(number)
            assert f"author_{1 - int(number == '1')}" not in json.dumps(row)
    call = rows[0]["messages"][2]["content"]
    assert call.startswith("Hm.\n<tool_call>\n{")
