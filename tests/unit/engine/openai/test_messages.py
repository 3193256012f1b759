"""Ids to the messages of a chat request."""

from __future__ import annotations

import json

import pytest

from engine.core.protocols.chat import Chat
from engine.core.protocols.tagged import Tagged
from engine.core.sampler.openai.messages import (
    ChatConversation,
    Span,
    chat_conversation,
)
from engine.core.text.conversation_codec import CALL_TAGS, ConversationCodec
from engine.core.text.packed import PackedBytes
from engine.types import ToolSpec
from toolwright.types import Task

CODEC = ConversationCodec(PackedBytes())
TASK = Task(id="t", prompt="How many?")
TOOL = ToolSpec(name="count", usage="counts")


def tagged(*turns: tuple[str, str]) -> tuple[list[int], list[Span]]:
    """(ids, what the policy wrote) of (action, observation) pairs."""
    protocol = Tagged()
    ids, written = protocol.prompt(TASK, (), CODEC), []
    for action, observation in turns:
        start = len(ids)
        ids += CODEC.encode_action(action)
        written.append((start, len(ids)))
        head, tail = protocol.frame("</python>", CODEC)
        ids += [*head, *protocol.observation([observation], CODEC), *tail]
    return ids, written


def asked(ids: list[int], written: list[Span], **more: object) -> ChatConversation:
    options = {"as_user": False, "call_tags": CALL_TAGS, **more}
    return chat_conversation(ids, CODEC, written=written, **options)  # type: ignore[arg-type]


def test_a_first_request_ends_with_the_users_message() -> None:
    for as_user in (False, True):
        found = asked(*tagged(), as_user=as_user)
        assert found.messages == ({"role": "user", "content": "How many?"},)
        assert not found.continues


def test_an_open_turn_is_continued() -> None:
    found = asked(*tagged(("<python>1</python>", "one"), ("<python>2</python>", "two")))
    assert found.continues
    assert found.messages[-1] == {
        "role": "assistant",
        "content": "<python>1</python><result> one</result><python>2</python><result> two</result>",
    }
    begun = asked(*tagged(("<python>1</python>", "one")), received="So")
    assert begun.messages[-1]["content"].endswith("</result>So")
    first = asked(*tagged(), received="So")
    assert (first.messages[-1], first.continues) == ({"role": "assistant", "content": "So"}, True)


def test_observations_as_a_users_messages() -> None:
    found = asked(*tagged(("<python>1</python>", "one"), ("", "empty")), as_user=True)
    assert not found.continues
    assert [tuple(message.values()) for message in found.messages] == [
        ("user", "How many?"),
        ("assistant", "<python>1</python>"),
        ("user", "<result> one</result><result> empty</result>"),
    ]


def called(action: str, answer: str) -> ChatConversation:
    protocol = Chat()
    ids = protocol.prompt(TASK, [TOOL], CODEC)
    ids += CODEC.encode_action(action)
    head, tail = protocol.frame("</tool_call>", CODEC)
    ids += [*head, *protocol.observation([answer], CODEC), *tail]
    return asked(ids, [])


@pytest.mark.parametrize("text", ["ä", "see </tool_call> there", "<tool_call>{}</tool_call>"])
def test_calls_of_an_action_go_back_as_calls(text: str) -> None:
    """Whatever tags their arguments spell."""
    body = json.dumps({"name": "count", "arguments": {"of": text}}, ensure_ascii=False)
    found = called(f"Hm.\n<tool_call>\n{body}\n</tool_call>", "42")
    (call,) = found.messages[1]["tool_calls"]
    arguments = json.dumps({"of": text}, ensure_ascii=False)
    assert call["function"] == {"name": "count", "arguments": arguments}
    assert found.messages[1]["content"] == "Hm."
    assert found.messages[2] == {"role": "tool", "content": "42", "tool_call_id": call["id"]}
    assert found.tools[0]["function"]["name"] == "count"


@pytest.mark.parametrize(
    "action",
    [
        "<tool_call>{broken</tool_call>",
        '<tool_call>{"name": "count"}</tool_call><tool_call>{"name": "count"}</tool_call>',
        "<tool_call>" + "[" * 10_000 + "</tool_call>",
    ],
)
def test_a_call_that_nobody_can_read_is_answered_by_a_user(action: str) -> None:
    found = called(action, "no")
    assert found.messages[1] == {"role": "assistant", "content": action}
    assert found.messages[2] == {"role": "user", "content": "no"}


def test_ids_that_end_in_no_open_turn_are_refused() -> None:
    ids = CODEC.chat_ids([{"role": "user", "content": "q"}], generation_prompt=False)
    with pytest.raises(ValueError, match="open turn"):
        asked(ids, [])
    with pytest.raises(ValueError, match="open turn"):
        asked([], [])
