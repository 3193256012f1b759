"""Digests: what makes a conversation another one, and what does not."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingress.canon import call_id, canonical_arguments, digests_of, reply_digests, without_billing
from ingress.text.rendering import in_call_order
from ingress.types import Message, ModelRequest, Sampling, ToolCall

pytestmark = pytest.mark.quick

USER = Message(role="user", text="q")
CALL = ToolCall(id="c1", name="look", arguments='{"a": 1, "b": [2]}')
SAID = Message(role="assistant", text="I look.", reasoning="hm", calls=(CALL,))
TOOL = {"type": "function", "function": {"name": "look", "parameters": {}}}


def asked(*messages: Message, tools: tuple[dict[str, object], ...] = ()) -> ModelRequest:
    return ModelRequest(model="policy", messages=messages, tools=tools)


TEXTS = st.text(max_size=5)
MESSAGES = st.lists(
    st.builds(
        Message,
        role=st.sampled_from(["system", "user", "assistant", "tool"]),
        text=TEXTS,
        calls=st.lists(st.builds(ToolCall, id=TEXTS, name=TEXTS, arguments=TEXTS), max_size=2).map(
            tuple
        ),
        name=TEXTS,
    ),
    max_size=5,
)


@given(MESSAGES, MESSAGES)
def test_equal_beginnings_have_equal_digests_and_others_do_not(
    one: list[Message], other: list[Message]
) -> None:
    here, there = (digests_of(asked(*messages), {}).messages for messages in (one, other))
    for place in range(min(len(one), len(other))):
        equal = [*map(meaning, one[: place + 1])] == [*map(meaning, other[: place + 1])]
        assert (here[place] == there[place]) is equal


def meaning(message: Message) -> Message:
    """The message without what a client may change. Arguments here are no JSON but numbers."""
    calls = tuple(
        replace(call, id="", arguments=str(canonical_arguments(call.arguments)))
        for call in message.calls
    )
    text = message.text.strip() if message.role == "assistant" else message.text
    return replace(message, text=text, calls=calls)


@pytest.mark.parametrize(
    "sent_back",
    [
        SAID,
        replace(SAID, reasoning=""),
        replace(SAID, calls=(replace(CALL, id="another"),)),
        replace(SAID, calls=(replace(CALL, arguments='{"b":[2.0],"a":1}'),)),
        replace(SAID, text="\nI look. "),
    ],
)
def test_a_completion_that_comes_back_has_the_digest_of_the_reply(sent_back: Message) -> None:
    reply = reply_digests(digests_of(asked(USER), {}), SAID)
    again = digests_of(asked(USER, sent_back), {})
    assert again.messages[1] == reply.message
    assert again.reasoning == ({1: reply.reasoning} if sent_back.reasoning else {})


@pytest.mark.parametrize(
    "edited",
    [
        replace(SAID, text="I looked."),
        replace(SAID, calls=()),
        replace(SAID, calls=(replace(CALL, arguments='{"a": 2, "b": [2]}'),)),
        replace(SAID, role="user"),
    ],
)
def test_an_edited_completion_has_another_digest(edited: Message) -> None:
    reply = reply_digests(digests_of(asked(USER), {}), SAID)
    assert digests_of(asked(USER, edited), {}).messages[1] != reply.message


def test_other_reasoning_is_noticed() -> None:
    reply = reply_digests(digests_of(asked(USER), {}), SAID)
    again = digests_of(asked(USER, replace(SAID, reasoning="ha")), {})
    assert again.reasoning[1] != reply.reasoning


def test_tools_and_template_options_are_the_root() -> None:
    plain = digests_of(asked(USER), {})
    for other in (digests_of(asked(USER, tools=(TOOL,)), {}), digests_of(asked(USER), {"x": 1})):
        assert other.root != plain.root
        assert other.messages[0] != plain.messages[0]


def test_parameters_change_the_request_alone() -> None:
    plain = digests_of(asked(USER), {})
    hot = digests_of(replace(asked(USER), sampling=Sampling(temperature=2.0)), {})
    assert hot.messages == plain.messages
    assert hot.request != plain.request


def test_ids_of_calls_differ_and_stay() -> None:
    digests = digests_of(asked(USER), {})
    ids = [call_id(digests, choice, number) for choice in (0, 1) for number in (0, 1)]
    assert len({*ids}) == 4
    assert ids[0] == call_id(digests, 0, 0)


def test_the_billing_line_is_left_out() -> None:
    text = "x-anthropic-billing-header: cc_version=2; cch=1f;\nYou are helpful.\n"
    assert without_billing(text) == "You are helpful.\n"
    assert without_billing("You are helpful.") == "You are helpful."


def result(call_id: str) -> Message:
    return Message(role="tool", text=call_id, call_id=call_id)


@pytest.mark.parametrize(
    ("sent", "kept"), [("ba", "ab"), ("ab", "ab"), ("xba", "abx"), ("yx", "yx"), ("bxa", "abx")]
)
def test_results_stand_in_the_order_of_their_calls(sent: str, kept: str) -> None:
    said = Message(role="assistant", calls=tuple(replace(CALL, id=one) for one in "ab"))
    given = [USER, said, *map(result, sent), USER, SAID, result("c1"), USER]
    found = in_call_order(given)
    assert list(found) == [USER, said, *map(result, kept), USER, SAID, result("c1"), USER]


DEFAULTS = {
    "type": "object",
    "properties": {"a": {"default": 1}, "flag": {"default": False}, "c": {"default": None}, "d": 0},
}


EQUAL_NUMBERS = [
    ("1", "1.0", "1e0", "10e-1"),
    ("0", "-0", "0.0", "-0.0", "0e5", "0.00e-400", "0e999999999"),
    ("9007199254740993",),
    ("9007199254740992", "9007199254740992.0", "9007199254740993.0"),
    ("-9007199254740993",),
    ("1000000000000000000000", "1e+21", "1e21", "1000000000000000000000.0"),
    ("1000000000000000000001",),
    ("123456789012345680", "123456789012345678.9", "1.2345678901234568e+17"),
    ("123456789012345678",),
    ("1" + "0" * 307, "1e307"),
    ("0.1", "1e-1", "0.1000000000000000055511151231257827"),
    ("1e400",),
    ("2e400",),
    ("-1e400",),
    ("1e999999999",),
    ("1e-400",),
    ("1" * 400,),
    ("1" * 5000,),
    ("1" * 4999 + "2",),
]


def test_numbers_have_one_digest_if_they_are_equal() -> None:
    """Python's clients keep integers, JavaScript's write any number as a double."""
    found: dict[bytes, int] = {}
    for group, texts in enumerate(EQUAL_NUMBERS):
        for text in texts:
            call = replace(CALL, arguments=f'{{"id": {text}}}')
            digest = digests_of(asked(USER, replace(SAID, calls=(call,))), {}).messages[-1]
            assert found.setdefault(digest, group) == group, text
    assert len(found) == len(EQUAL_NUMBERS)


def test_the_canonical_form_is_not_much_longer_than_the_arguments() -> None:
    text = "[" + "1e308," * 1000 + "1e20," * 1000 + "1]"
    assert len(json.dumps(canonical_arguments(text))) < 6 * len(text)


@pytest.mark.parametrize(
    ("arguments", "same"),
    [
        ('{"b": [2]}', True),
        ('{"flag": false, "b": [2], "c": null, "a": 1.0}', True),
        ('{"a": true, "b": [2]}', False),
        ('{"flag": 0, "b": [2]}', False),
        ('{"flag": true, "b": [2]}', False),
        ('{"b": [2], "d": 0}', False),
        ('[{"b": [2]}]', False),
    ],
)
def test_an_argument_with_its_default_may_be_left_out(arguments: str, same: bool) -> None:
    """Claude Code adds `replace_all: false` to an edit."""
    tool = {"type": "function", "function": {"name": "look", "parameters": DEFAULTS}}
    reply = reply_digests(digests_of(asked(USER, tools=(tool,)), {}), SAID)
    sent = replace(SAID, calls=(replace(CALL, arguments=arguments),))
    again = digests_of(asked(USER, sent, USER, tools=(tool,)), {})
    assert (again.messages[1] == reply.message) is same
