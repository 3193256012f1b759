"""SEARL's `create_and_execute` in whole trajectories: what one makes, the next does not have."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from bench.scripted import ScriptRequest
from tests.integration.engine.conftest import MakeWorld
from tests.support.dialogue import ANSWER, by_turn
from toolwright.types import StopReason, ToolErrorKind

ONE_AFTER_THE_OTHER: dict[str, Any] = {
    "run": {"steps": 1, "groups_per_step": 2, "group_size": 1},
    "engine": {"max_concurrent": 1},
}
SMALL = ("--ready", "1", "--shards", "1", "--memory-mib", "192")


def call(tool: str, **arguments: Any) -> str:
    return f"<tool_call>{json.dumps({'name': tool, 'arguments': arguments})}</tool_call>"


ADD = call("add", a=20, b=22)
MAKE = call(
    "create_and_execute",
    name="add",
    description="Adds.",
    arguments={"a": {"type": "number"}, "b": {"type": "number"}},
    returns="the sum",
    code="def add(a, b):\n    return a + b",
    inputs={"a": 2, "b": 3},
)


async def test_a_made_tool_is_called_in_a_later_turn_and_is_gone_in_the_next_trajectory(
    world: MakeWorld,
) -> None:
    here = await world(**ONE_AFTER_THE_OTHER)
    here.tables["tools"] = {"make": {"serve": ["create_and_execute", *SMALL], "run_limit_s": 30.0}}
    maker = by_turn(here.codec, [ADD, MAKE, ADD, call("add", a="x", b=1), ANSWER])
    other = by_turn(here.codec, [ADD, ANSWER])

    def script(request: ScriptRequest) -> Sequence[int]:
        asked = here.codec.decode(request.input_ids)
        return list((maker if "what is 0+1?" in asked else other)(request))

    here.sampler._script = script
    here.tables["task"]["limits"] = {"turns": 6}
    async with here.engine() as run:
        groups = await run.learner.lease(await run.learner.version(), count=2, wait=60)
    first, second = sorted((group.members[0] for group in groups), key=lambda t: t.task.id)

    early, made, used, wrong = first.calls
    assert (early.error, early.valid) == (ToolErrorKind.UNKNOWN_TOOL, False)
    assert json.loads(made.observation)["execution_result"] == 5
    assert (used.tool, json.loads(used.observation)["execution_result"]) == ("add", 42)
    assert used.isolation == made.isolation != ""
    assert (wrong.tool, wrong.error) == ("add", ToolErrorKind.INVALID_ACTION)
    assert first.stop_reason is StopReason.ANSWERED

    (gone,) = second.calls
    assert gone.error is ToolErrorKind.UNKNOWN_TOOL
    assert gone.invalid_reason == "there is no tool 'add', only create_and_execute"
    assert second.stop_reason is StopReason.ANSWERED
