"""Anthropic's messages and OpenAI's responses: what is read, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from ingress.dialects.chat import CHAT
from ingress.dialects.messages import MESSAGES
from ingress.dialects.reading import UNSEEN
from ingress.dialects.responses import RESPONSES
from ingress.dialects.types import Dialect
from ingress.errors import ApiError
from ingress.types import (
    CallEnd,
    Complete,
    Message,
    Said,
    Sampling,
    ToolCall,
    Usage,
    Words,
)

pytestmark = pytest.mark.quick

USER = {"role": "user", "content": "q"}
LOOK = ToolCall(id="c", name="look", arguments='{"a": 1}')
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
CONVERSATION = (
    Message(role="system", text="s\nt"),
    Message(role="user", text="q"),
    Message(role="assistant", text="I look.", reasoning="hm", calls=(LOOK,)),
    Message(role="tool", text="a cat", call_id="c"),
    Message(role="user", text="more"),
)


def test_a_request_of_anthropic_s_is_read() -> None:
    billing = "x-anthropic-billing-header: cch=1f;"
    found = MESSAGES.read(
        {
            "model": "policy",
            "max_tokens": 7,
            "system": [
                {"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}
                for text in (billing, "s", "t")
            ],
            "messages": [
                USER,
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "hm", "signature": "x"},
                        {"type": "redacted_thinking", "data": "x"},
                        {"type": "text", "text": "I look."},
                        {"type": "tool_use", "id": "c", "name": "look", "input": {"a": 1}},
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "c",
                         "content": [{"type": "text", "text": "a cat"}]},
                        {"type": "text", "text": "more"},
                    ],
                },
            ],
            "tools": [{"name": "look", "input_schema": {"type": "object"}}],
            "tool_choice": {"type": "tool", "name": "look"},
            "stop_sequences": ["x"],
            "metadata": {"user_id": "u"},
        }
    )  # fmt: skip
    assert found.messages == CONVERSATION
    assert found.tools == (TOOL,)
    assert (found.tool_choice, found.named_tool, found.stops) == ("required", "look", ("x",))
    assert found.sampling == Sampling(max_new_tokens=7)


def test_a_deferred_tool_is_shown_where_a_result_refers_to_it() -> None:
    """Claude Code loads tools so."""
    tool = {"name": "look", "input_schema": {"type": "object"}}
    parts = [
        {"type": "text", "text": "Found: "},
        {"type": "tool_reference", "tool_name": "look"},
        {"type": "tool_reference", "tool_name": "gone"},
    ]
    result = {"type": "tool_result", "tool_use_id": "c", "content": parts}
    found = MESSAGES.read(
        {
            "messages": [USER, {"role": "user", "content": [result]}],
            "tools": [{**tool, "defer_loading": True}, {**tool, "name": "search"}],
        }
    )
    assert [one["function"]["name"] for one in found.tools] == ["search"]
    assert found.later_tools == (TOOL,)
    assert found.messages[1].text == f'Found: {json.dumps(TOOL)}\n"gone"\n'


def test_a_request_of_the_responses_api_is_read() -> None:
    found = RESPONSES.read(
        {
            "model": "policy",
            "instructions": "s\nt",
            "input": [
                USER,
                {"type": "reasoning", "id": "rs", "summary": [],
                 "content": [{"type": "reasoning_text", "text": "hm"}]},
                {"type": "message", "role": "assistant",
                 "content": [{"type": "output_text", "text": "I look.", "annotations": []}]},
                {"type": "function_call", "call_id": "c", "name": "look", "arguments": '{"a": 1}'},
                {"type": "function_call_output", "call_id": "c", "output": "a cat"},
                {"role": "user", "content": [{"type": "input_text", "text": "more"}]},
            ],
            "tools": [{"type": "function", "strict": True, **TOOL["function"]}],
            "tool_choice": {"type": "function", "name": "look"},
            "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}},
            "max_output_tokens": 7,
        }
    )  # fmt: skip
    assert found.messages == CONVERSATION
    assert found.tools == (TOOL,)
    assert (found.tool_choice, found.named_tool) == ("required", "look")
    assert found.schema == '{"type": "object"}'
    assert found.sampling == Sampling(max_new_tokens=7)


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image"}]}]},
            "messages[0].content[0]",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "tool_use"}]}]},
            "messages[0].content[0]",
        ),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0]"),
        ({"tool_choice": {"type": "perhaps"}}, "tool_choice"),
        ({"system": 7}, "system"),
    ],
)
def test_a_wrong_key_of_anthropic_s_is_named(change: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as refused:
        MESSAGES.read({"model": "policy", "max_tokens": 9, "messages": [USER], **change})
    assert refused.value.param == param
    body = MESSAGES.error(refused.value)
    assert (body["type"], body["error"]["type"]) == ("error", "invalid_request_error")


def test_a_tool_of_a_namespace_has_its_name_before_its_own() -> None:
    """Codex groups tools, and sends a web search that OpenAI's server would run."""
    function = {"type": "function", **TOOL["function"]}
    called = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
    request = RESPONSES.read(
        {
            "input": [{**called, "namespace": "eyes"}, called],
            "tools": [
                {"type": "namespace", "name": "eyes", "description": "d", "tools": [function]},
                {"type": "web_search", "external_web_access": True},
                function,
                {**function, "name": "other.look"},
            ],
        }
    )
    names = [tool["function"]["name"] for tool in request.tools]
    assert names == ["eyes.look", "look", "other.look"]
    (message,) = request.messages
    assert [call.name for call in message.calls] == ["eyes.look", "look"]
    calls = tuple(replace(LOOK, name=name) for name in names)
    complete = Complete(
        choice=0, message=replace(message, calls=calls), end="tool_calls", stop="", logprobs=()
    )
    whole = RESPONSES.reply(request).whole(CallEnd(completions=(complete,), usage=Usage()))
    found = [(item["name"], item.get("namespace")) for item in whole["output"]]
    assert found == [("look", "eyes"), ("look", None), ("other.look", None)]


@pytest.mark.parametrize(
    ("dialect", "body"),
    [
        (
            MESSAGES,
            {"messages": [{"role": "user", "content": [{"type": "tool_result", "content": [
                {"type": "text", "text": "a "}, {"type": "image", "source": {}}]}]}]},
        ),
        (
            RESPONSES,
            {"input": [{"type": "function_call_output", "output": [
                {"type": "input_text", "text": "a "}, {"type": "input_image", "image_url": ""}]}]},
        ),
        (
            CHAT,
            {"messages": [{"role": "tool", "content": [
                {"type": "text", "text": "a "}, {"type": "image_url", "image_url": {}}]}]},
        ),
    ],
)  # fmt: skip
def test_an_image_in_a_result_is_a_text(dialect: Dialect, body: dict[str, Any]) -> None:
    assert dialect.read(body).messages[0].text == f"a {UNSEEN}"


def test_a_full_context_has_the_numbers_that_claude_code_reads() -> None:
    why = "This model's maximum context length is exceeded: 9 tokens > 8 maximum"
    body = MESSAGES.error(ApiError(why, code="context_length_exceeded"))
    assert body["error"]["message"] == "prompt is too long: 9 tokens > 8 maximum"


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"input": []}, "input"),
        ({"input": [{"type": "computer_call"}]}, "input[0]"),
        ({"input": [{"role": "robot", "content": "x"}]}, "input[0].role"),
        ({"previous_response_id": 1}, "previous_response_id"),
        ({"previous_response_id": "resp_1", "input": [], "instructions": "s"}, "input"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"store": "no"}, "store"),
        ({"tools": [{"type": "code_interpreter"}]}, "tools[0]"),
        (
            {
                "tools": [
                    {
                        "type": "namespace",
                        "name": "n",
                        "tools": [{"type": "namespace", "name": "m"}],
                    }
                ]
            },
            "tools[0].tools[0]",
        ),
        ({"text": {"format": {"type": "xml"}}}, "text.format"),
    ],
)
def test_a_wrong_key_of_the_responses_api_is_named(change: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as refused:
        RESPONSES.read({"model": "policy", "input": "q", **change})
    assert refused.value.param == param


@pytest.mark.parametrize(
    ("end", "stop", "reason"),
    [
        ("stop", "", "end_turn"),
        ("stop", "x", "stop_sequence"),
        ("length", "", "max_tokens"),
        ("tool_calls", "", "tool_use"),
    ],
)
def test_why_a_message_of_anthropic_s_stopped(end: Any, stop: str, reason: str) -> None:
    complete = Complete(
        choice=0, message=Message(role="assistant", text="t"), end=end, stop=stop, logprobs=()
    )
    reply = MESSAGES.reply(MESSAGES.read({"model": "policy", "messages": [USER]}))
    whole = reply.whole(CallEnd(completions=(complete,), usage=Usage()))
    assert (whole["stop_reason"], whole["stop_sequence"]) == (reason, stop or None)


@pytest.mark.parametrize("dialect", [MESSAGES, RESPONSES])
def test_a_stream_and_a_whole_response_say_the_same(dialect: Any) -> None:
    request = dialect.read({"model": "policy", "messages": [USER], "input": "q"})
    pieces = (Words(text="hm", reasoning=True), Words(text="I "), Words(text="look."), LOOK)
    message = Message(role="assistant", text="I look.", reasoning="hm", calls=(LOOK,))
    complete = Complete(choice=0, message=message, end="tool_calls", stop="", logprobs=())
    end = CallEnd(completions=(complete,), usage=Usage(prompt_tokens=3, completion_tokens=2))
    streamed = dialect.reply(request)
    events = [*streamed.begin("0-1")]
    for piece in pieces:
        events += streamed.said(Said(choice=0, piece=piece))
    events += streamed.end(end)
    whole = dialect.reply(request).whole(end)
    assert all(name == data["type"] for name, data in events)
    if dialect is RESPONSES:
        (name, data) = events[-1]
        assert name == "response.completed"
        last = data["response"]
        kinds = [item["type"] for item in last["output"]]
        assert kinds == [item["type"] for item in whole["output"]]
        assert kinds == ["reasoning", "message", "function_call"]
        assert [data["sequence_number"] for _, data in events] == [*range(len(events))]
    else:
        kinds = [
            data["content_block"]["type"] for name, data in events if name == "content_block_start"
        ]
        assert kinds == [block["type"] for block in whole["content"]]
        assert kinds == ["thinking", "text", "tool_use"]
        assert [name for name, _ in events].count("content_block_stop") == 3
