"""SEARL's `create_and_execute` in whole trajectories: what one makes, the next does not have."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from bench.scripted import ScriptRequest
from tests.integration.engine.conftest import MakeWorld, World
from tests.integration.engine.test_tool_lines import ONE_IN_FLIGHT, call, rolled_out
from tests.support.dialogue import ANSWER, by_turn
from toolwright.types import StopReason, ToolErrorKind

pytestmark = pytest.mark.quick

SMALL = ("--ready", "1", "--shards", "1", "--memory-mib", "192")
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


def say(here: World) -> None:
    """The first task's policy makes a tool and uses it, the second one's only tries."""
    maker = by_turn(here.codec, [ADD, MAKE, ADD, call("add", a="x", b=1), ANSWER])
    other = by_turn(here.codec, [ADD, ANSWER])

    def script(request: ScriptRequest) -> Sequence[int]:
        asked = here.codec.decode(request.input_ids)
        return list((maker if "what is 0+1?" in asked else other)(request))

    here.sampler._script = script


async def test_a_made_tool_is_called_in_a_later_turn_and_is_gone_in_the_next_trajectory(
    world: MakeWorld,
) -> None:
    here = await world(**ONE_IN_FLIGHT)
    say(here)
    line = {"serve": ["create_and_execute", *SMALL], "run_limit_s": 30.0}
    first, second, _ = await rolled_out(here, "run", line)

    early, made, used, wrong = first.calls
    assert (early.outcome.error, early.outcome.valid) == (ToolErrorKind.UNKNOWN_TOOL, False)
    assert json.loads(made.outcome.observation)["execution_result"] == 5
    assert (used.tool, json.loads(used.outcome.observation)["execution_result"]) == ("add", 42)
    assert used.outcome.isolation == made.outcome.isolation != ""
    assert (wrong.tool, wrong.outcome.error) == ("add", ToolErrorKind.INVALID_ACTION)
    assert first.stop_reason is StopReason.ANSWERED

    (gone,) = second.calls
    assert gone.outcome.error is ToolErrorKind.UNKNOWN_TOOL
    assert gone.outcome.invalid_reason == "there is no tool 'add', only create_and_execute"
    assert second.stop_reason is StopReason.ANSWERED


async def test_a_made_tool_is_made_again_by_a_cassette(world: MakeWorld) -> None:
    """And its calls are answered; nothing runs."""
    here = await world(**ONE_IN_FLIGHT)
    say(here)
    record = ("--set", 'cassette.record=["create_and_execute"]', *SMALL)
    recorded = await rolled_out(
        here, "recorded", {"serve": ["cassette:run.jsonl", *record], "run_limit_s": 30.0}
    )
    replayed = await rolled_out(here, "replayed", {"serve": ["cassette:run.jsonl"]})
    assert json.loads(replayed[0].calls[2].outcome.observation)["execution_result"] == 42
    for before, after in zip(recorded, replayed, strict=True):
        assert before.sequences[0].token_ids == after.sequences[0].token_ids
        assert [c.outcome.isolation for c in after.calls] == [""] * len(before.calls)
