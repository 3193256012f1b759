"""`engine sample` where every question has tools of its own, which a model makes and plays."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import pytest

from bench.scripted import ScriptRequest
from engine.offline.enums import Dedupe, ExportLayout
from tests.integration.engine.conftest import MakeWorld
from tests.support.chat_endpoint import chat_endpoint
from tests.support.collected import collect, kept

pytestmark = pytest.mark.quick

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


KEEP = """
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
    (here.folder / "criteria.py").write_text(KEEP, encoding="utf-8")

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
