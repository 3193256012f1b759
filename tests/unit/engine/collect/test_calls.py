"""Calls in one spelling, and which trajectories made the same ones."""

from __future__ import annotations

from typing import Any

import pytest

from engine.core.protocols.chat import Chat
from engine.core.trajectory.state import Action, State
from engine.offline.collect.calls import canonical_calls, mark_of_calls
from engine.types import ToolSpec
from tests.support.codecs import ToyCodec
from toolwright.types import CallOutcome, CallRecord, FinishKind, FinishReason, Task

TASK = Task(id="t", prompt="who?")
TOOLS = (ToolSpec(name="add", json_call=True, close_tag="</tool_call>"),)
CLOSE = "</tool_call>"


def call(body: str) -> str:
    return f"<tool_call>{body}{CLOSE}"


def state(*actions: str, made: tuple[int, ...] | None = None) -> State:
    """Actions that end at a call, but for the last where `made` says so: calls of each."""
    counts = made or (1,) * len(actions)
    return State(
        tools=TOOLS,
        actions=tuple(
            Action(text=text, stop=CLOSE, finish=FinishReason(kind=FinishKind.STOP), tokens=1)
            for text in actions
        ),
        calls=tuple(
            CallRecord(
                call_id=f"a/{turn}/{index}",
                turn=turn,
                index=index,
                tool="add",
                action=text,
                outcome=CallOutcome(observation="", valid=False),
            )
            for turn, text in enumerate(actions)
            for index in range(counts[turn])
        ),
    )


def canonical(*actions: str, made: tuple[int, ...] | None = None, **options: Any) -> list[Any]:
    return canonical_calls(state(*actions, made=made), TASK, Chat(**options), ToyCodec())


def test_neither_the_order_of_keys_nor_what_was_thought_makes_another_call() -> None:
    one = canonical("Hm." + call('{"name": "add", "arguments": {"b": 2, "a": [1, "é"]}}'))
    other = canonical(call(' {"arguments": {"a": [1, "é"], "b": 2}, "name": "add"}\n'))
    assert one == other == [("add", '{"a": [1, "é"], "b": 2}')]


@pytest.mark.parametrize(
    "body",
    [
        '{"name": "add", "arguments": {"a": 2}}',
        '{"name": "add", "arguments": {"a": "1"}}',
        '{"name": "sub", "arguments": {"a": 1}}',
        '{"name": "add"}',
        "no JSON",
    ],
)
def test_another_name_or_argument_is_another_call(body: str) -> None:
    assert canonical(call(body)) != canonical(call('{"name": "add", "arguments": {"a": 1}}'))


def test_a_call_that_nobody_can_read_is_its_text() -> None:
    assert canonical(call("{") + "") == [("add", call("{"))]


def test_several_calls_of_one_action_come_in_their_order_and_only_those_that_were_made() -> None:
    two = call('{"name": "add", "arguments": {"a": 1}}') + call('{"name": "add", "arguments": {}}')
    assert canonical(two, made=(2,), parallel=True) == [("add", '{"a": 1}'), ("add", "{}")]
    assert canonical(two, made=(1,), parallel=True) == [("add", '{"a": 1}')]


def test_a_mark_tells_questions_and_calls_apart() -> None:
    calls = [("add", "{}"), ("add", '{"a": 1}')]
    same = mark_of_calls(TASK, calls)
    assert mark_of_calls(Task(id="another", prompt="who?"), calls) == same
    others = [
        mark_of_calls(Task(id="t", prompt="what?"), calls),
        mark_of_calls(Task(id="t", messages=({"role": "user", "content": "who?"},)), calls),
        mark_of_calls(TASK, calls[::-1]),
        mark_of_calls(TASK, calls[:1]),
        mark_of_calls(TASK, [("add", "{}add"), ("", '{"a": 1}')]),
        mark_of_calls(TASK, []),
    ]
    assert len({same, *others}) == 7


def test_half_a_surrogate_pair_has_a_mark() -> None:
    assert mark_of_calls(Task(id="t", prompt="\ud800"), [("add", "\udfff")])
