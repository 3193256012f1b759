"""A protocol takes time in step with the action that it reads, and an action that is nothing but
calls costs no more at its last mark than at an early one."""

from typing import Any

import pytest

from engine.core.protocols.actions import read_call, read_json_call
from engine.core.protocols.chat import MOST_CALLS, Chat
from engine.core.protocols.tagged import Tagged
from engine.types import Calls, ToolSpec
from tests.support.codecs import END, ToyCodec
from tests.support.linear import assert_linear
from tests.support.views import view_of
from toolwright.reading import actions
from toolwright.reading.actions import call_in

pytestmark = pytest.mark.alone

TOY = ToyCodec()
JSON_TOOL = ToolSpec(
    name="add",
    json_call=True,
    open_tag="<tool_call>",
    close_tag="</tool_call>",
    stop_strings=("</tool_call>",),
)
TAG_TOOL = ToolSpec(
    name="python",
    open_tag="<python>",
    close_tag="</python>",
    stop_strings=("</python>",),
    argument="code",
)
VIEW = view_of((JSON_TOOL, TAG_TOOL))
CALL = '<tool_call>{"name": "add", "arguments": {}}</tool_call>'

READERS = {
    "json": lambda text: read_json_call(text, "<tool_call>", "</tool_call>"),
    "stop": lambda text: read_call(text, "</python>", VIEW.tools),
    "chat": lambda text: Chat().decide(text, "</tool_call>", VIEW, TOY),
    "chat-parallel": lambda text: Chat(parallel=True).decide(text, END, VIEW, TOY),
    "chat-answer": lambda text: Chat(answer_open="<a>", answer_close="</a>").decide(
        text, END, VIEW, TOY
    ),
    "tagged": lambda text: Tagged().decide(text, END, VIEW, TOY),
}


@pytest.mark.parametrize("name", READERS)
def test_work_grows_in_step_with_the_action(name: str) -> None:
    assert_linear(READERS[name], "<tool_call>", "</tool_call>")


def test_an_action_of_nothing_but_calls_is_read_up_to_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = 0

    def counting(*arguments: Any) -> Any:
        nonlocal read
        read += 1
        return call_in(*arguments)

    monkeypatch.setattr(actions, "call_in", counting)
    decision = Chat(parallel=True).decide(CALL * 20_000, "</tool_call>", VIEW, TOY)
    assert isinstance(decision, Calls)
    assert read == MOST_CALLS + 1
    assert "more than" in decision.calls[-1].invalid_reason
    # The calls at an earlier mark begin those of a later one.
    fewer = Chat(parallel=True).decide(CALL * (MOST_CALLS + 1), "</tool_call>", VIEW, TOY)
    assert fewer == decision
