"""One recipe, and only its tool's line changes: a Python file, a service in another language, a
model that plays the tool, a recording. The policy writes the same, and reads the same."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.integration.engine.conftest import MakeWorld, World
from tests.support.chat_endpoint import chat_endpoint
from tests.support.dialogue import ANSWER, by_turn
from tests.support.lasting import lasting
from tests.support.node_tool import node_tool
from tests.support.waiting import until
from toolwright.types import Trajectory

pytestmark = pytest.mark.slow

ONE_IN_FLIGHT: dict[str, Any] = {
    "run": {"steps": 1, "groups_per_step": 3, "group_size": 1},
    "engine": {"max_concurrent": 1},
}
COUNTER = """
from pydantic import BaseModel
from toolsvc import Tool


class Step(BaseModel):
    add: int
    after: float


class Counter(Tool):
    name = "counter"
    description = "Adds to a counter of the session, after so many seconds, and tells it."
    arguments = Step
    stateful = True

    def open(self, session):
        return [0]

    def call(self, state, call):
        state[0] += call.arguments["add"]
        return str(state[0])
"""
COUNTER_SCHEMA = {
    "type": "function",
    "function": {
        "name": "counter",
        "description": "Adds to a counter of the session, after so many seconds, and tells it.",
        "parameters": {
            "type": "object",
            "properties": {"add": {"type": "integer"}, "after": {"type": "number"}},
            "required": ["add", "after"],
        },
    },
}
DICE = """
import random
from toolsvc import Result, ToolFailed, tool


@tool
def dice(sides: int, times: int) -> Result:
    "Throws dice."
    if sides < 1:
        raise ToolFailed(f"no dice have {sides} sides, {random.random()}")
    thrown = [random.randint(1, sides) for _ in range(times)]
    return Result.of(str(thrown), reward=random.random(), metrics={"sum": float(sum(thrown))})
"""


def call(tool: str, **arguments: Any) -> str:
    return f"<tool_call>{json.dumps({'name': tool, 'arguments': arguments})}</tool_call>"


THROWS = [
    call("dice", sides=1_000_000, times=3),
    call("dice", sides="many", times=3),
    call("dice", sides=0, times=1),
    "no call</tool_call>",
    call("dice", sides=1_000_000, times=3),
    ANSWER,
]


async def rolled_out(here: World, name: str, line: dict[str, Any]) -> list[Trajectory]:
    """The trajectories of a run of its own, in the order of their tasks."""
    here.tables["tools"] = {"tool": line}
    here.tables["run"]["folder"] = name
    here.tables["task"]["limits"] = {"turns": 8, "model": 4096}
    count = here.tables["run"]["groups_per_step"]
    async with here.engine() as run:
        groups = await run.learner.lease(count=count, wait=60)
    assert len(groups) == count
    return sorted((t for group in groups for t in group.members), key=lambda t: t.id)


def played(body: dict[str, Any]) -> str:
    """What a model does that plays the counter: it goes by the earlier calls that it is shown."""
    return str(sum(map(int, re.findall(r'"add": (\d+)', body["messages"][-1]["content"]))))


async def test_one_recipe_and_four_tool_lines(world: MakeWorld, tmp_path: Path) -> None:
    (tmp_path / "counter.py").write_text(COUNTER, encoding="utf-8")
    (tmp_path / "tools.json").write_text(json.dumps([COUNTER_SCHEMA]), encoding="utf-8")
    here = await world(**ONE_IN_FLIGHT)
    said = call("counter", add=40, after=0), call("counter", add=2, after=0.0), ANSWER
    here.sampler._script = by_turn(here.codec, said)
    record = 'cassette.record=["counter.py"]'
    async with chat_endpoint(played) as endpoint:
        model = f"simulated.endpoint={endpoint.url}", "simulated.model=tiny"
        with node_tool(tmp_path / "node.log") as node:
            lines: dict[str, dict[str, Any]] = {
                "python": {"serve": ["counter.py"]},
                "node": {"service": node, "names": ["counter"]},
                "simulated": {"serve": ["simulated:tools.json", *_set(*model)]},
                "recorded": {"serve": ["cassette:run.jsonl", *_set(record)]},
                "cassette": {"serve": ["cassette:run.jsonl"]},
            }
            runs = {name: await rolled_out(here, name, line) for name, line in lines.items()}
        assert endpoint.requests
    assert [c.outcome.observation for c in runs["python"][0].calls] == ["40", "42"]
    kept = {name: [lasting(t) for t in run] for name, run in runs.items()}
    for name in lines:
        assert kept[name] == kept["python"], name


async def test_a_cassette_is_the_recorded_run_token_for_token(
    world: MakeWorld, tmp_path: Path
) -> None:
    """Of a tool that answers otherwise every time, fails, and refuses; the prompts show it."""
    (tmp_path / "dice.py").write_text(DICE, encoding="utf-8")
    here = await world(**ONE_IN_FLIGHT)
    here.tables["task"]["protocol_options"] = {"system": "{usage}"}
    here.sampler._script = by_turn(here.codec, THROWS)
    record = _set('cassette.record=["dice.py"]')
    recorded = await rolled_out(here, "recorded", {"serve": ["cassette:run.jsonl", *record]})
    (tmp_path / "dice.py").unlink()
    replayed = await rolled_out(here, "replayed", {"serve": ["cassette:run.jsonl"]})

    assert [lasting(t) for t in replayed] == [lasting(t) for t in recorded]
    for before, after in zip(recorded, replayed, strict=True):
        (one,), (other,) = before.sequences, after.sequences
        assert one.token_ids == other.token_ids
        assert one.loss_mask == other.loss_mask
        assert [c.outcome.valid for c in after.calls] == [True, False, True, False, True]
        assert "Throws dice." in here.texts(after)[0][1]
    # The run is one that nobody could have guessed.
    throws = {c.outcome.observation for t in recorded for c in t.calls if c.outcome.valid}
    assert len(throws) == 9


async def test_what_a_cassette_lacks_ends_the_attempt(world: MakeWorld, tmp_path: Path) -> None:
    """The policy never sees a guess, and whoever looks after the run reads what was missed."""
    (tmp_path / "dice.py").write_text(DICE, encoding="utf-8")
    here = await world(**ONE_IN_FLIGHT)
    here.sampler._script = by_turn(here.codec, THROWS)
    record = _set('cassette.record=["dice.py"]')
    await rolled_out(here, "recorded", {"serve": ["cassette:run.jsonl", *record]})
    here.sampler._script = by_turn(here.codec, [call("dice", sides=6, times=1), ANSWER])
    here.tables["tools"] = {"tool": {"serve": ["cassette:run.jsonl"]}}
    here.tables["run"]["folder"] = "missed"
    with capture_logs() as said:

        def told() -> bool:
            failed = [str(entry) for entry in said if entry["event"] == "attempt_failed"]
            return any("run.jsonl has no answer to call 0" in entry for entry in failed)

        async with here.engine() as run:
            await until(told, "the miss")
            assert (await run.learner.status()).accepted == 0


def _set(*options: str) -> list[str]:
    return [word for option in options for word in ("--set", option)]
