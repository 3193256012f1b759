"""Under the paper's preset a rollout plans, makes four searches and answers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from engine.core.rollout.assignment import Assignment
from engine.core.rollout.decide import Dispatch, Finish, Generate, Observe, Rules, next_step
from engine.core.rollout.observe import Observer
from engine.core.trajectory.log import AttemptLog
from engine.types import Say, ToolSpec
from tests.support.codecs import ToyCodec
from tests.support.recipes import Part
from tests.support.written_logs import act, answer, call, opened
from tests.unit.searl.conftest import FOLDER, PLAN, answering, step
from toolwright.recipe import Limits, load_recipe
from toolwright.types import SamplingParams, StopReason, Task

pytestmark = pytest.mark.quick

CODEC = ToyCodec()
SEARCH = ToolSpec(name="search")
TASK = Task(id="t", messages=({"role": "user", "content": "Who?"},))
WRITTEN = 340
"""Tokens of each of the six actions."""


def preset() -> Limits:
    """The limits of the chat recipe, which are the preset's."""
    return load_recipe(FOLDER / "chat.toml").shared.task.limits


async def trajectory(part: Part, limits: Limits, actions: list[str]) -> tuple[AttemptLog, Finish]:
    """Every search brings more text than an observation holds, and the prompt is the longest."""
    rules = Rules(
        protocol=part("protocol.Searl")(memory=False),
        codec=CODEC,
        limits=limits,
        observation_keep="middle",
    )
    log = opened(prompt=(1,) * 4096, tools=[SEARCH])
    assignment = Assignment(
        trajectory_id="g0-0", group_id="g0", index=0, task=TASK, sampling=SamplingParams()
    )
    environment = cast("Any", SimpleNamespace(keep_of=lambda _tool: "head"))
    observer = Observer(rules, assignment, log, {}, environment)
    for text in actions:
        wanted = next_step(log.state, rules, TASK)
        if isinstance(wanted, Finish):
            return log, wanted
        assert isinstance(wanted, Generate)
        stop = next(
            one for one in ("</tool_call>", "</answer>", "<|im_end|>") if text.endswith(one)
        )
        act(log, text, stop, token_ids=(3,) * min(WRITTEN, wanted.room))
        done = next_step(log.state, rules, TASK)
        if isinstance(done, Say):
            observer.say(done)
        elif isinstance(done, Dispatch):
            answer(log, call(log, tool="search"), observation="a page " * 1000)
            assert isinstance(next_step(log.state, rules, TASK), Observe)
            await observer.observe(0.0)
    last = next_step(log.state, rules, TASK)
    assert isinstance(last, Finish)
    return log, last


ACTIONS = [
    f"{PLAN}<|im_end|>",
    *(step("search", query=f"number {number}") for number in range(4)),
    answering(4),
]


async def test_four_searches_and_the_answer_fit_the_papers_preset(part: Part) -> None:
    limits = preset()
    log, last = await trajectory(part, limits, ACTIONS)
    assert last.reason is StopReason.ANSWERED
    state = log.state
    assert [one.tool for one in state.calls] == ["search"] * 4
    assert [one.tokens for one in state.actions] == [WRITTEN] * 6
    assert sum(one.tokens for one in state.actions) <= limits.policy == 2048
    assert state.response_ids > 2 * limits.policy


async def test_a_budget_that_counts_observations_ends_in_the_searches(part: Part) -> None:
    counting = preset().model_copy(update={"policy": 0, "response": 2048})
    log, last = await trajectory(part, counting, ACTIONS)
    assert last.reason is StopReason.MAX_RESPONSE_LENGTH
    assert len(log.state.calls) < 4


async def test_what_the_policy_writes_is_bounded(part: Part) -> None:
    short = preset().model_copy(update={"policy": 5 * WRITTEN})
    log, last = await trajectory(part, short, ACTIONS)
    assert last.reason is StopReason.MAX_RESPONSE_LENGTH
    assert len(log.state.calls) == 4
