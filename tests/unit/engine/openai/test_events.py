"""Bytes of a stream to deltas: what a server may send, and what a hostile one does."""

from __future__ import annotations

import json
import time

import pytest

from engine.sampler.openai.events import Hint, SseReader, WireError, read_delta

EVENTS = (
    b": a comment\r\n\r\ndata: one\r\n\r\nevent: x\ndata:two\ndata: three\n\n\n\ndata: [DONE]\n\n"
)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_events_come_whole_however_the_bytes_come(size: int) -> None:
    reader = SseReader()
    found = []
    for start in range(0, len(EVENTS), size):
        found += reader.feed(EVENTS[start : start + size])
    assert found == [b"one", b"two\nthree", b"[DONE]"]


def test_the_streams_end_completes_an_event() -> None:
    reader = SseReader()
    assert reader.feed(b"data: last") == []
    assert reader.end() == [b"last"]
    assert SseReader().end() == []


def test_an_endless_line_is_refused_in_linear_time() -> None:
    reader = SseReader(limit=1 << 20)
    began = time.process_time()
    with pytest.raises(WireError, match="more than"):
        while True:
            reader.feed(b"x" * 64)
    assert time.process_time() - began < 2.0  # searched from its beginning each time: minutes


def test_an_event_of_endless_lines_is_refused() -> None:
    reader = SseReader(limit=1000)
    with pytest.raises(WireError, match="more than"):
        for _ in range(1000):
            reader.feed(b"data: 0123456789\n")


@pytest.mark.parametrize(
    "payload",
    [
        b"", b"null", b"[]", b"{}", b"{", b"\xff\xfe", b'"text"', b'{"choices": {}}',
        b'{"choices": [1]}', b'{"choices": [{"text": 7}]}', b"[" * 100_000,
        b'{"choices": [{"delta": {"content": ["a"]}}]}', b"<html></html>", b"NaN",
        b'{"choices": [{"delta": {"tool_calls": [{"index": -1}]}}]}',
        b'{"choices": [{"delta": {"tool_calls": [{"index": 100000}]}}]}',
        b'{"choices": [{"text": "\\ud800"}]}',
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


def test_calls_come_in_pieces() -> None:
    call = {"index": 1, "id": "c", "function": {"name": "f", "arguments": '{"a"'}}
    (part,) = read_delta(delta(delta={"tool_calls": [call]})).calls
    assert (part.index, part.name, part.arguments) == (1, "f", '{"a"')
    rest = {"index": 1, "function": {"name": None, "arguments": None}}
    (part,) = read_delta(delta(delta={"tool_calls": [rest]})).calls
    assert (part.name, part.arguments) == ("", "")


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


def test_usage_without_choices() -> None:
    told = {"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": None}
    found = read_delta(json.dumps({"choices": [], "usage": told}).encode()).usage
    assert found is not None
    assert (found.prompt_tokens, found.completion_tokens, found.cached_tokens) == (7, 3, None)


@pytest.mark.parametrize(
    ("error", "retryable"),
    [
        ({"message": "down", "code": 500}, True),
        ({"message": "no", "code": 400}, False),
        ({"message": "slow", "code": 429}, True),
        ("just a text", True),
        ({}, True),
    ],
)
def test_an_error_inside_a_stream(error: object, retryable: bool) -> None:
    with pytest.raises(WireError) as raised:
        read_delta(json.dumps({"error": error}).encode())
    assert raised.value.retryable is retryable
