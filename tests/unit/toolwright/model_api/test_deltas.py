"""Payloads to deltas: what servers send, and what a hostile one does."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toolwright.model_api.deltas import (
    Delta,
    Ending,
    Halves,
    Hint,
    Usage,
    ending_of,
    read_answer,
    read_event,
    read_usage,
    said,
)
from toolwright.model_api.errors import WireError
from toolwright.model_api.event_stream import StreamEvent

pytestmark = pytest.mark.quick


def read_delta(payload: bytes) -> Delta:
    return read_event(StreamEvent(payload))


@pytest.mark.parametrize(
    "payload",
    [
        b"", b"null", b"[]", b"{}", b"{", b"\xff\xfe", b'"text"', b'{"choices": {}}',
        b'{"choices": [1]}', b'{"choices": [{"text": 7}]}', b"[" * 100_000,
        b'{"choices": [{"delta": {"content": 7}}]}', b"<html></html>", b"NaN",
        b'{"choices": [{"delta": {"content": [7]}}]}', b'{"choices": [{"delta": 7}]}',
        b'{"choices": [{"delta": {"tool_calls": [{"index": -1}]}}]}',
        b'{"choices": [{"delta": {"tool_calls": [{"index": 1e999}]}}]}',
        b'{"choices": [{"delta": {"tool_calls": [{"function": {"name": ["a"]}}]}}]}',
    ],
)  # fmt: skip
def test_what_is_no_chunk_of_the_api_is_the_servers_fault(payload: bytes) -> None:
    with pytest.raises(WireError):
        read_delta(payload)


def delta(**choice: object) -> bytes:
    return json.dumps({"id": "x", "choices": [choice], "usage": None}).encode()


def test_deltas_of_both_apis() -> None:
    assert read_delta(delta(text="a", logprobs=None)).text == "a"
    assert read_delta(delta(delta={"role": "assistant"})).text == ""
    assert read_delta(delta(delta={"content": None, "tool_calls": None})).text == ""
    assert read_delta(delta(delta={"content": "b", "refusal": None})).text == "b"
    assert read_delta(delta(message={"content": "whole"}, finish_reason="stop")).finish == "stop"
    thought = read_delta(delta(delta={"reasoning_content": "hmm", "content": None}))
    assert (thought.text, thought.thought) == ("", 3)


@pytest.mark.parametrize(
    ("told", "hint"),
    [
        ({}, None),
        ({"matched_stop": "</python>"}, Hint(text="</python>")),
        ({"matched_stop": 7}, Hint(text=None)),
        ({"stop_reason": None}, Hint(text=None)),
        ({"stop_reason": "</python>"}, Hint(text="</python>")),
    ],
)
def test_what_the_server_stopped_at(told: dict[str, object], hint: Hint | None) -> None:
    assert read_delta(delta(text="", finish_reason="stop", **told)).hint == hint
    assert read_delta(delta(text="", finish_reason=None, **told)).hint is None


@pytest.mark.parametrize(
    ("error", "retryable"),
    [
        ({"message": "down", "code": 500}, True),
        ({"message": "no", "code": 400}, False),
        ("just a text", True),
        ({}, True),
    ],
)
def test_an_error_inside_a_stream(error: object, retryable: bool) -> None:
    with pytest.raises(WireError) as raised:
        read_delta(json.dumps({"error": error}).encode())
    assert raised.value.retryable is retryable


@pytest.mark.parametrize(
    ("content", "text", "thought"),
    [
        ([{"type": "text", "text": "Hello"}], "Hello", 0),
        ([{"type": "reasoning", "text": "hm"}, {"type": "output_text", "text": "a"}], "a", 2),
        ({"type": "text", "text": "one part"}, "one part", 0),
        ([{"type": "text", "text": {"value": "deep", "annotations": []}}], "deep", 0),
        (["a", "b"], "ab", 0),
        ([], "", 0),
    ],
)
def test_content_in_parts(content: object, text: str, thought: int) -> None:
    found = read_delta(delta(delta={"content": content}))
    assert (found.text, found.thought) == (text, thought)


def test_thoughts_nested_without_end_are_read_to_a_depth() -> None:
    part: Any = "x"
    for _ in range(300):
        part = [part]
    found = read_delta(delta(delta={"content": [{"type": "thinking", "thinking": part}]}))
    assert found.thought == 0


@pytest.mark.parametrize(
    "shape",
    [
        {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": {"a": "é"}}}]},
        {"tool_calls": {"index": 0, "function": {"name": "f", "arguments": '{"a": "é"}'}}},
        {"tool_calls": [{"index": "0", "function": {"name": "f", "arguments": '{"a": "é"}'}}]},
        {"content": None, "function_call": {"name": "f", "arguments": '{"a": "é"}'}},
    ],
)
def test_shapes_of_a_call(shape: dict[str, object]) -> None:
    (part,) = read_delta(delta(delta=shape)).calls
    assert (part.index, part.name, part.arguments) == (0, "f", '{"a": "é"}')


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}},
        {"input_tokens": 7, "output_tokens": 3, "input_tokens_details": {"cached_tokens": 2}},
        {"prompt_tokens": 7.0, "completion_tokens": "3", "prompt_cache_hit_tokens": 2},
    ],
)
def test_usage_under_other_names(usage: dict[str, object]) -> None:
    assert read_usage(usage) == Usage(prompt_tokens=7, completion_tokens=3, cached_tokens=2)


@pytest.mark.parametrize(
    "usage", [[], "7", 7, {"prompt_tokens": -1}, {"prompt_tokens": 10**400}, {"total": None}]
)
def test_usage_that_cannot_be_read_costs_no_answer(usage: object) -> None:
    body = json.dumps({"choices": [{"text": "a", "finish_reason": "stop"}], "usage": usage})
    found = read_delta(body.encode())
    assert (found.text, found.finish, found.usage) == ("a", "stop", None)


@pytest.mark.parametrize(
    ("payload", "retryable"),
    [
        (b'{"code": 400, "message": "the context is too small"}', False),
        (b'{"error": {"code": "400", "message": "the context is too small"}}', False),
        (b'{"message": "the context is too small", "type": "invalid_request_error"}', False),
        (b'{"message": "the context is too small", "code": 503}', True),
        (b"the context is too small", True),
    ],
)
def test_an_error_beside_the_payload(payload: bytes, retryable: bool) -> None:
    with pytest.raises(WireError, match="the context is too small") as raised:
        read_event(StreamEvent(payload, is_error=True))
    assert raised.value.retryable is retryable


@pytest.mark.parametrize(
    "payload",
    [
        b'{"object": "error", "message": "no memory", "code": 500}',
        b'[{"error": {"code": 500, "message": "no memory"}}]',
        b'{"detail": "no memory"}',
        b'{"error": "no memory", "choices": []}',
    ],
)
def test_an_error_of_another_shape_is_quoted(payload: bytes) -> None:
    with pytest.raises(WireError, match="no memory"):
        read_delta(payload)


@pytest.mark.parametrize(
    "payload",
    [
        b'{"type": "ping"}',
        b'{"id": "x", "object": "chat.completion.chunk", "choices": []}',
        b'{"object": "chat.completion.chunk"}',
        b'{"choices": [], "prompt_filter_results": []}',
    ],
)
def test_an_event_that_brings_nothing(payload: bytes) -> None:
    assert not read_delta(payload).brings


@pytest.mark.parametrize(
    ("word", "ending"),
    [
        ("stop", Ending.STOP),
        ("end_turn", Ending.STOP),
        ("MAX_TOKENS", Ending.LENGTH),
        ("content_filter", Ending.FILTERED),
        ("insufficient_system_resource", Ending.FAILED),
        ("a word of next year", Ending.UNKNOWN),
    ],
)
def test_finish_words_of_other_servers(word: str, ending: Ending) -> None:
    assert ending_of(word) is ending


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        (["a\ud83d", "\ude00b"], "a\U0001f600b"),
        (["\ud83d", "", "\ude00"], "\U0001f600"),
        (["\ud83d", "x"], "\ufffdx"),
        (["a", "\ud83d"], "a\ufffd"),
    ],
)
def test_halves_of_a_surrogate_pair_are_joined(pieces: list[str], text: str) -> None:
    halves = Halves()
    read = [read_delta(delta(text=piece)).text for piece in pieces]
    assert "".join([*map(halves.join, read), halves.join("", last=True)]) == text


def test_a_whole_answer() -> None:
    message = {"content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "1"}]}
    body = {"choices": [{"message": message, "finish_reason": "MAX_TOKENS"}], "usage": None}
    found = read_answer(json.dumps(body).encode())
    assert (found.text, found.cut, found.usage) == ("1", True, Usage())


@pytest.mark.parametrize("body", [b"", b"{}", b'{"choices": []}', b"<html>", b'{"usage": {}}'])
def test_what_is_not_a_whole_answer(body: bytes) -> None:
    with pytest.raises(WireError):
        read_answer(body)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"error": {"message": "no", "param": null}}', "no"),
        (b'{"error": {"message": "bad", "param": "top_p", "code": "unsupported_parameter"}}',
         "bad (unsupported parameter: 'top_p')"),
        (b'{"detail": [{"msg": "extra inputs"}]}', "extra inputs"),
        (
            b'{"detail": [{"type": "extra_forbidden", "loc": ["body", "temperature"], '
            b'"msg": "No"}]}',
            "No (extra forbidden: 'temperature')",
        ),
        (
            b'{"detail": [{"loc": ["body", "top_p"], "msg": "No"}, {"loc": ["body", "seed"], '
            b'"msg": "No"}, {"loc": ["body", "max_tokens"], "msg": "Too many"}]}',
            "No (parameter: 'top_p', 'seed')",
        ),
        (
            b'{"detail": [{"loc": ["body", "messages", 0, "name"], "msg": "No"}]}',
            "No (parameter: 'messages.0.name')",
        ),
        (b'{"detail": [{"loc": "body", "msg": "No"}, {"loc": [[]], "msg": "No"}, 7]}', "No"),
        (b"plain\n words", "plain words"),
        (b"[" * 100_000, "[" * 300),
        (b"[" * 900 + b"]" * 900, None),
        (b'{"error": ' * 900 + b"1" + b"}" * 900, None),
        (b"", ""),
    ],
)  # fmt: skip
def test_the_message_of_a_refusal(body: bytes, words: str | None) -> None:
    found = said(body)
    assert found == words if words is not None else len(found) <= 300
