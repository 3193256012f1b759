"""Tools beside the real SGLang on CPU: it samples the policy, and it plays the tools.

One server with a tiny random model is started for the whole file. What it writes makes no sense,
which is the point: nothing here knows beforehand what it will be.
"""

from __future__ import annotations

import json
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract import real_sampler
from tests.integration.engine.conftest import MakeWorld
from tests.integration.engine.test_tool_lines import ONE_IN_FLIGHT, call, rolled_out
from tests.support.dialogue import ANSWER, by_turn
from tests.support.lasting import lasting
from tests.support.policy import write_policy
from toolwright.types import StopReason, ToolErrorKind

pytestmark = pytest.mark.timeout(300)

VOCABULARY = 320
ORACLE = f"""
import random
from toolsvc import RawFormat, Tool


class Oracle(Tool):
    name = "oracle"
    description = "Takes whatever is said up to a letter, and answers otherwise every time."
    format = RawFormat()
    stop_strings = tuple({string.printable!r})

    def call(self, state, call):
        return " ".join(random.choices("abcdefghijklmnopqrstuvwxyz", k=8))
"""
SKY: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "sky",
        "description": "Tells what the sky is like over a town.",
        "parameters": {
            "type": "object",
            "properties": {"town": {"type": "string"}},
            "required": ["town"],
        },
    },
    "returns": {
        "type": "object",
        "properties": {"sky": {"enum": ["clear", "cloudy", "dark"]}},
        "required": ["sky"],
    },
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy folder with everything: tokenizer, chat template, random weights."""
    folder = write_policy(tmp_path_factory.mktemp("model"))
    return real_sampler.write_model(folder, 1, str(VOCABULARY))


@pytest.fixture(scope="module")
def sglang(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    log = tmp_path_factory.mktemp("sglang") / "server.log"
    options = ("--grammar-backend", "xgrammar", "--constrained-json-disable-any-whitespace")
    with real_sampler.serve(model, log, *options, text=True) as url:
        yield url


async def test_a_greedy_run_on_a_cassette_is_the_recorded_one_token_for_token(
    world: MakeWorld, tmp_path: Path, model: Path, sglang: str
) -> None:
    """An observation is what the policy says its next words after, so one wrong token would show
    in all that follow."""
    (tmp_path / "oracle.py").write_text(ORACLE)
    here = await world(**ONE_IN_FLIGHT, policy=model)
    here.tables["sampler"] = {"endpoints": [sglang], "temperature": 0.0}
    here.tables["task"]["protocol_options"] = {"observation": "{text}"}
    record = ["--set", 'cassette.record=["oracle.py"]']
    recorded = await rolled_out(here, "recorded", {"serve": ["cassette:run.jsonl", *record]})
    (tmp_path / "oracle.py").unlink()
    replayed = await rolled_out(here, "replayed", {"serve": ["cassette:run.jsonl"]})

    actions = [c.action for t in recorded for c in t.calls]
    assert len(actions) == 24
    assert len(set(actions)) > 4  # what it says depends on what it has read
    assert [lasting(t).calls for t in replayed] == [lasting(t).calls for t in recorded]
    for before, after in zip(recorded, replayed, strict=True):
        (one,), (other,) = before.sequences, after.sequences
        assert one.token_ids == other.token_ids
        assert one.loss_mask == other.loss_mask
        assert before.stop_reason is after.stop_reason


@pytest.mark.parametrize("constrained", [True, False])
async def test_tools_that_sglang_plays(
    world: MakeWorld, tmp_path: Path, sglang: str, constrained: bool
) -> None:
    """Told the schema, it keeps to it. Not told, a model that writes nonsense is asked again and
    then is a failure that the policy reads; nothing else breaks."""
    (tmp_path / "tools.json").write_text(json.dumps([SKY]))
    here = await world(**ONE_IN_FLIGHT)
    oslo, bergen = call("sky", town="Oslo"), call("sky", town="Bergen")
    here.sampler._script = by_turn(here.codec, [oslo, call("sky", twon="x"), oslo, bergen, ANSWER])
    options = {
        "endpoint": f"{sglang}/v1",
        "model": "tiny",
        "max_tokens": 24,
        "regenerations": 1,
        "constrained": str(constrained).lower(),
    }
    words = [
        word for name, value in options.items() for word in ("--set", f"simulated.{name}={value}")
    ]
    line = {"serve": ["simulated:tools.json", *words], "run_limit_s": 120.0}
    trajectories = await rolled_out(here, "played", line)
    for trajectory in trajectories:
        assert trajectory.stop_reason is StopReason.ANSWERED
        first, wrong, again, other = (call.outcome for call in trajectory.calls)
        assert json.loads(wrong.invalid_reason)["error"]["stage"] == "pre"
        for one in (first, again, other):
            told = json.loads(one.observation)
            if constrained:
                assert one.error is ToolErrorKind.NONE
                assert told["sky"] in ("clear", "cloudy", "dark")
            else:
                assert one.error is ToolErrorKind.EXCEPTION
                assert (told["error"]["type"], told["error"]["stage"]) == (
                    "validation_error",
                    "post",
                )
        if constrained:
            assert again.observation == first.observation
    # One world: what was answered once holds for all sessions.
    if constrained:
        assert len({trajectory.calls[0].outcome.observation for trajectory in trajectories}) == 1
