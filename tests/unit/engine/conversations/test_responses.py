"""Rows with items of the Responses API, NeMo Gym's rollouts among them. The rows are ours."""

from __future__ import annotations

from typing import Any

import pytest

from engine.offline.conversations.layouts import conversation
from tests.unit.engine.conversations.test_layouts import (
    EXPECTED,
    OPENAI,
    PARAMETERS,
    WEATHER,
    plain,
)
from toolwright.reading.task_rows.refusal import RowRefused

pytestmark = pytest.mark.quick


def items_of(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages as items of the Responses API; reasoning precedes each turn of the model."""
    items: list[dict[str, Any]] = []
    for one in messages:
        if one["role"] == "tool":
            answer = {"call_id": one["tool_call_id"], "output": one["content"]}
            items.append({"type": "function_call_output", "id": None, **answer})
            continue
        if one["role"] != "assistant":
            items.append({"type": "message", "role": one["role"], "content": one["content"]})
            continue
        items.append({"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]})
        part = {"type": "output_text", "text": one["content"], "annotations": []}
        items.append({"type": "message", "role": "assistant", "content": [part]})
        for each in one.get("tool_calls", ()):
            function = {"call_id": each["id"], **each["function"]}
            items.append({"type": "function_call", "status": "completed", **function})
    return items


FUNCTION = {"type": "function", "strict": True, **WEATHER["function"]}
ITEMS = items_of(OPENAI["messages"])
ROLLOUT: dict[str, Any] = {
    "responses_create_params": {"input": ITEMS[:2], "tools": [FUNCTION], "model": None},
    "response": {"object": "response", "output": ITEMS[2:], "tools": [FUNCTION]},
    "reward": 1.0,
}
"""A rollout of NeMo Gym."""
PAIR = {
    "instructions": "Be brief.",
    "input": "Oslo and Bergen?",
    "tools": [FUNCTION, {"type": "web_search"}],
    "output": ITEMS[2:],
}


@pytest.mark.parametrize("row", [ROLLOUT, PAIR], ids=["nemo", "a pair"])
def test_items_are_read_as_messages(row: dict[str, Any]) -> None:
    found = conversation(row, 7)
    assert plain(found) == EXPECTED
    assert (found.id, found.with_tool_list) == ("7", None)
    assert found.tools is not None
    (tool,) = found.tools
    assert (tool.name, tool.arguments_schema) == ("weather", PARAMETERS)


def test_each_turn_of_calls_is_a_message_and_the_user_may_speak_again() -> None:
    more = items_of(OPENAI["messages"][1:])
    found = conversation({"input": ITEMS, "output": more}, 1)
    assert plain(found) == [*EXPECTED, *EXPECTED[1:]]
    assert found.tools is None


def items(*output: Any) -> dict[str, Any]:
    """A rollout with these items after those of ROLLOUT."""
    return ROLLOUT | {"response": {"output": [*ITEMS[2:], *output]}}


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (ROLLOUT | {"response": None}, "must be objects"),
        (ROLLOUT | {"responses_create_params": {"input": 3}}, "'input' is a int"),
        (items(ITEMS), "item 11 is a list"),
        (items({"type": "web_search_call"}), "item 11 is a 'web_search_call'"),
        (items({"type": "function_call", "name": "a"}, ITEMS[1]), "1 calls and 0 results"),
    ],
)
def test_a_broken_row_says_where_and_what(row: Any, words: str) -> None:
    with pytest.raises(RowRefused) as caught:
        conversation(row, 1)
    assert words in str(caught.value)
