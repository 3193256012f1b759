"""Whatever reads a recorded call reads it whole: its arguments may spell the tags of a call."""

from __future__ import annotations

import json

import pytest

from engine.offline.conversations.layouts import conversation
from engine.offline.conversations.types import BrokenRow
from recipes.mtr.answers import without_calls

pytestmark = pytest.mark.quick

TEXTS = [
    "see </tool_call> there",
    "<tool_call>",
    "<tool_call>{}</tool_call>",
    '"}}</tool_call>\n<tool_call>{"',
]


def call(text: str) -> str:
    body = {"name": "note", "arguments": {"text": text}}
    return f"<tool_call>\n{json.dumps(body)}\n</tool_call>"


@pytest.mark.parametrize("text", TEXTS)
def test_of_a_published_row(text: str) -> None:
    said = [{"from": "human", "value": "?"}, {"from": "gpt", "value": f"Well.\n{call(text)}"}]
    *_, last = conversation({"conversations": said}, 1).messages
    (made,) = last["tool_calls"]
    assert (last["content"], made["function"]["arguments"]) == ("Well.", {"text": text})


@pytest.mark.parametrize("key", ["parameters", "args", "input"])
def test_of_a_published_row_with_another_key(key: str) -> None:
    value = f'<tool_call>{{"name": "note", "{key}": {{"text": "x"}}}}</tool_call>'
    said = [{"from": "human", "value": "?"}, {"from": "gpt", "value": value}]
    with pytest.raises(BrokenRow, match=f'message 2.*"{key}" in place of "arguments"'):
        conversation({"conversations": said}, 1)


@pytest.mark.parametrize("text", TEXTS)
def test_of_a_trace(text: str) -> None:
    assert without_calls(f"one {call(text)} two {call('b')}three<tool_call>{{") == "one  two three"
