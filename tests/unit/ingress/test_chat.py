"""OpenAI's chat completions: keys that are read, keys that are refused, and the replies' shape."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from ingress.dialects.chat import ChatReply, error_body, read_request
from ingress.errors import ApiError
from ingress.types import (
    CallEnd,
    Complete,
    Message,
    ModelRequest,
    Said,
    Sampling,
    TokenLogprob,
    ToolCall,
    Usage,
    Words,
)

pytestmark = pytest.mark.quick

USER = {"role": "user", "content": "q"}
FUNCTION = {"name": "look", "parameters": {"type": "object"}}
CALL = ToolCall(id="c", name="look", arguments="{}")


def test_a_request_is_read() -> None:
    found = read_request(
        {
            "model": "policy",
            "messages": [
                {"role": "developer", "content": [{"type": "text", "text": "s"}]},
                USER,
                {
                    "role": "assistant",
                    "content": None,
                    "reasoning_content": "hm",
                    "tool_calls": [
                        {"id": "c", "type": "function",
                         "function": {"name": "look", "arguments": "{}"}}
                    ],
                },
                {"role": "tool", "tool_call_id": "c", "content": "a cat"},
            ],
            "tools": [{"type": "function", "function": {**FUNCTION, "strict": True}}],
            "tool_choice": {"type": "function", "function": {"name": "look"}},
            "response_format": {"type": "json_object"},
            "n": 2,
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": 0.5,
            "max_tokens": 7,
            "stop": "x",
            "user": "ignored",
        }
    )  # fmt: skip
    assert found == ModelRequest(
        model="policy",
        messages=(
            Message(role="system", text="s"),
            Message(role="user", text="q"),
            Message(role="assistant", reasoning="hm", calls=(CALL,)),
            Message(role="tool", text="a cat", call_id="c"),
        ),
        tools=({"type": "function", "function": FUNCTION},),
        tool_choice="required",
        named_tool="look",
        schema='{"type": "object"}',
        n=2,
        stream=True,
        stream_usage=True,
        sampling=Sampling(temperature=0.5, max_new_tokens=7),
        stops=("x",),
    )


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": 7}]}, "messages[0].content"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "messages[0].content",
        ),
        ({"messages": [USER] * 4097}, "messages"),
        ({"tools": [{"type": "web_search"}]}, "tools[0]"),
        ({"tool_choice": "perhaps"}, "tool_choice"),
        ({"response_format": {"type": "xml"}}, "response_format"),
        ({"n": 17}, "n"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 2**40}, "max_tokens"),
        ({"seed": -1}, "seed"),
        ({"stop": ["x"] * 33}, "stop"),
        ({"stream": "yes"}, "stream"),
        ({"logprobs": True, "top_logprobs": 3}, "top_logprobs"),
    ],
)
def test_a_wrong_key_is_named(change: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as refused:
        read_request({"model": "policy", "messages": [USER], **change})
    body = error_body(refused.value)["error"]
    assert body["param"] == param
    assert body["type"] == "invalid_request_error"
    assert body["message"].startswith(param)


def test_replies_are_what_the_client_s_own_types_expect() -> None:
    request = ModelRequest(model="policy", messages=(), logprobs=True, stream_usage=True)
    reply = ChatReply(request)
    message = Message(role="assistant", text="I look.", reasoning="hm", calls=(CALL,))
    complete = Complete(
        choice=0,
        message=message,
        end="tool_calls",
        stop="",
        logprobs=(TokenLogprob(token="I", logprob=-0.5),),
    )
    end = CallEnd(completions=(complete,), usage=Usage(prompt_tokens=3, completion_tokens=2))
    text = json.dumps(reply.whole(end))
    whole = ChatCompletion.model_validate(json.loads(text), strict=True)
    (choice,) = whole.choices
    assert choice.message.tool_calls
    assert choice.message.tool_calls[0].id == "c"
    assert choice.logprobs
    assert choice.logprobs.content
    assert choice.logprobs.content[0].token == "I"
    assert whole.usage
    assert whole.usage.total_tokens == 5
    pieces = (Words(text="hm", reasoning=True), Words(text="I look."), CALL)
    said = [event for piece in pieces for event in reply.said(Said(choice=0, piece=piece))]
    events = [data for _, data in (*said, *reply.end(end))]
    assert events.pop() == "[DONE]"
    read = [ChatCompletionChunk.model_validate(one, strict=True) for one in events]
    assert [one.choices[0].delta.role for one in read[:-1]] == ["assistant", None, None, None]
    assert read[3].choices[0].finish_reason == "tool_calls"
    assert read[4].usage
    assert read[4].usage.prompt_tokens == 3
