"""The sampler's stream: both shapes, drift, errors, and any cut of its bytes."""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from array import array
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.sampler.wire.events import (
    DONE,
    MAX_EMPTY_EVENTS,
    Chunk,
    ChunkReader,
    EventSplitter,
    WireError,
)
from engine.core.sampler.wire.request import encode, generate_request
from toolwright.types import FinishKind, FinishReason, SamplingParams

STOP = {"type": "stop", "matched": 3}


VOCABULARY = 100


def reader_of(incremental: bool, *, most: int = 100) -> ChunkReader:
    return ChunkReader(incremental=incremental, vocab_size=VOCABULARY, max_new_tokens=most)


def event(
    ids: list[int],
    total: int,
    *,
    finish: dict[str, Any] | None = None,
    pairs: list[Any] | None = None,
    version: str = "a.1",
    spans: list[dict[str, Any]] | None = None,
    tops: list[Any] | None = None,
) -> bytes:
    meta: dict[str, Any] = {
        "id": "r",
        "finish_reason": finish,
        "completion_tokens": total,
        "weight_version": version,
        "output_token_logprobs": [[-i / 8, i, None] for i in ids] if pairs is None else pairs,
    }
    if spans is not None:
        meta["weight_versions"] = spans
    if tops is not None:
        meta["output_top_logprobs"] = tops
    return orjson.dumps({"output_ids": ids, "meta_info": meta})


def stream(ids: list[int], sizes: list[int], *, incremental: bool) -> list[bytes]:
    """The events of one reply in chunks of `sizes`."""
    events, sent = [], 0
    for number, size in enumerate(sizes):
        end = len(ids) if number == len(sizes) - 1 else sent + size
        shown = ids[sent:end] if incremental else ids[:end]
        last = number == len(sizes) - 1
        events.append(event(shown, end, finish=STOP if last else None))
        sent = end
    return events


@given(
    st.lists(st.integers(0, 9), max_size=20),
    st.lists(st.integers(0, 4), min_size=1, max_size=6),
    st.booleans(),
)
def test_both_shapes_give_the_same_tokens(
    ids: list[int], sizes: list[int], incremental: bool
) -> None:
    sizes = [min(size, len(ids) // len(sizes)) for size in sizes]
    reader = reader_of(incremental)
    chunks = [reader.read(e) for e in stream(ids, sizes, incremental=incremental)]
    assert [i for chunk in chunks for i in chunk.token_ids] == ids
    assert [p for chunk in chunks for p in chunk.logprobs] == [-i / 8 for i in ids]
    assert [chunk.finish for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1].finish == FinishReason(kind=FinishKind.STOP, matched_token=3)
    assert reader.received == len(ids)


@pytest.mark.parametrize("incremental", [True, False])
def test_the_wrong_shape_is_seen_at_the_second_chunk(incremental: bool) -> None:
    reader = reader_of(incremental)
    first, second = stream([1, 2, 3, 4], [2, 2], incremental=not incremental)
    reader.read(first)
    with pytest.raises(WireError):
        reader.read(second)


def test_drift_is_an_error_and_names_the_counts() -> None:
    with pytest.raises(WireError, match="received 2 tokens, the server counted 3"):
        reader_of(True).read(event([1, 2], 3))


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        ([], "2 tokens came with 0 log-probs"),
        ([[-0.1, 1, None]], "2 tokens came with 1 log-probs"),
        ([[-0.1, 1, None], [None, 2, None]], "Expected `float`, got `null`"),
        ([[-0.1, 1, None], [-0.2, 9, None]], "not those of the tokens"),
    ],
)
def test_log_probs_that_do_not_fit(pairs: list[Any], words: str) -> None:
    with pytest.raises(WireError, match=words):
        reader_of(True).read(event([1, 2], 2, pairs=pairs))


@pytest.mark.parametrize(
    ("payload", "words", "retryable"),
    [
        (b"<html>", "event of /generate", True),
        (b'{"x": 1}', "lacks meta_info", True),
        (b'{"output_ids": [], "meta_info": {}}', "missing required field", True),
        (b'{"error": {"message": "too long", "retryable": false}}', "too long", False),
        (b'{"error": {"message": "worker gone"}}', "worker gone", True),
        (b'{"error": "plain"}', "plain", True),
    ],
)
def test_events_that_are_no_chunks(payload: bytes, words: str, retryable: bool) -> None:
    with pytest.raises(WireError, match=words) as caught:
        reader_of(True).read(payload)
    assert caught.value.retryable is retryable


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ({"type": "length", "length": 4}, FinishReason(kind=FinishKind.LENGTH)),
        ({"type": "abort", "message": "x"}, FinishReason(kind=FinishKind.ABORT)),
        (STOP, FinishReason(kind=FinishKind.STOP, matched_token=3)),
        (
            {"type": "stop", "matched": "</a>"},
            FinishReason(kind=FinishKind.STOP, matched_text="</a>"),
        ),
        (
            {"type": "stop", "matched": [7, 3]},
            FinishReason(kind=FinishKind.STOP, matched_token=3),
        ),
        ({"type": "stop"}, FinishReason(kind=FinishKind.STOP)),
    ],
)
def test_finish_reasons(reason: dict[str, Any], expected: FinishReason) -> None:
    assert reader_of(True).read(event([3], 1, finish=reason)).finish == expected


def test_versions_of_a_chunk_and_of_the_whole() -> None:
    spans = [{"version": "a.1", "start": 0, "end": 1}, {"version": "a.2", "start": 1, "end": 2}]
    chunk = reader_of(True).read(event([1, 2], 2, finish=STOP, version="a.2", spans=spans))
    assert chunk.weight_version == "a.2"
    assert chunk.weight_spans == (("a.1", 0, 1), ("a.2", 1, 2))


def test_an_abort_in_the_queue_repeats_a_token_that_is_not_added_again() -> None:
    reader = reader_of(True)
    reader.read(event([1, 2], 2))
    repeated = event([2], 2, finish={"type": "abort"}, pairs=[[-0.1, 1, None], [-0.2, 2, None]])
    chunk = reader.read(repeated)
    assert (list(chunk.token_ids), list(chunk.logprobs)) == ([], [])
    assert chunk.finish == FinishReason(kind=FinishKind.ABORT)


def top(*logprobs: float | None) -> list[list[Any]]:
    return [[value, place, None] for place, value in enumerate(logprobs)]


@pytest.mark.parametrize("incremental", [True, False])
def test_top_log_probs_come_with_their_tokens(incremental: bool) -> None:
    """Rounding, float32's least number and null (what JSON makes of -inf) are all told."""
    rows = [top(-0.5, -1.0), top(1e-7, -3.4028234663852886e38), top(-0.1, None)]
    reader = ChunkReader(incremental=incremental, vocab_size=9, max_new_tokens=9, top_logprobs=2)
    first = reader.read(event([1, 2], 2, tops=rows[:2]))
    again = ([3], rows[2:]) if incremental else ([1, 2, 3], rows)
    second = reader.read(event(again[0], 3, tops=again[1]))
    assert list(first.top_logprobs) == [(-0.5, -1.0), (0.0, -3.4028234663852886e38)]
    assert list(second.top_logprobs) == [(-0.1, -math.inf)]
    # They are passed over where nobody asked for them.
    assert reader_of(True).read(event([1], 1, tops=rows[:1])).top_logprobs == ()


@pytest.mark.parametrize(
    ("tops", "words"),
    [
        (None, "2 tokens came with top log-probs for 0"),
        ([top(-1.0)], "2 tokens came with top log-probs for 1"),
        ([top(-1.0), None], "without 1 to 2 top log-probs"),
        ([top(-1.0), []], "without 1 to 2 top log-probs"),
        ([top(-1.0), top(-1.0, -2.0, -3.0)], "without 1 to 2 top log-probs"),
        ([top(-1.0), top(0.5)], "event of /generate"),
        ([top(-1.0), [["x", 1, None]]], "event of /generate"),
        ([top(-1.0), "x"], "event of /generate"),
    ],
)
def test_top_log_probs_that_do_not_fit(tops: Any, words: str) -> None:
    reader = ChunkReader(incremental=True, vocab_size=9, max_new_tokens=9, top_logprobs=2)
    with pytest.raises(WireError, match=words):
        reader.read(event([1, 2], 2, tops=tops))


@given(st.lists(st.binary(max_size=8), max_size=6), st.lists(st.integers(0, 200), max_size=8))
def test_events_survive_any_cut_of_the_bytes(texts: list[bytes], cuts: list[int]) -> None:
    payloads = [orjson.dumps({"x": text.hex()}) for text in texts] + [DONE]
    data = b"".join(b"data: " + payload + b"\n\n" for payload in payloads)
    borders = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    splitter = EventSplitter(1 << 20)
    got = [
        payload
        for start, end in itertools.pairwise(borders)
        for payload in splitter.feed(data[start:end])
    ]
    assert got == payloads


def test_comments_and_an_unfinished_event_are_no_events() -> None:
    splitter = EventSplitter(1 << 20)
    assert list(splitter.feed(b': ping\n\ndata: {"a":1}\n\ndata: {"b"')) == [b'{"a":1}']
    assert list(splitter.feed(b":2}\n\n")) == [b'{"b":2}']


def test_a_request_says_everything_that_the_wire_needs() -> None:
    body = generate_request(
        rid="r",
        input_ids=(1, 2),
        sampling=SamplingParams(temperature=0.0, top_k=-1, seed=7, adapter="lora"),
        max_new_tokens=5,
        stop_token_ids=[3],
        stop=("</run>",),
        stream_interval=4,
        routing_key="t",
    )
    params = body.pop("sampling_params")
    assert body == {
        "rid": "r",
        "input_ids": [1, 2],
        "stream": True,
        "return_logprob": True,
        "logprob_start_len": -1,
        "routing_key": "t",
        "lora_path": "lora",
    }
    assert params == {
        "max_new_tokens": 5,
        "stop_token_ids": [3],
        "stop": ["</run>"],
        "skip_special_tokens": False,
        "spaces_between_special_tokens": False,
        "no_stop_trim": True,
        "stream_interval": 4,
        "temperature": 0.0,
        "top_k": -1,
        "sampling_seed": 7,
    }


def test_a_request_says_nothing_that_was_not_chosen() -> None:
    body = generate_request(
        rid="r", input_ids=[1], sampling=SamplingParams(), max_new_tokens=1, stop_token_ids=[]
    )
    assert not {"temperature", "top_p", "stop", "sampling_seed"} & set(body["sampling_params"])
    assert not {"routing_key", "lora_path"} & set(body)


def test_a_chunk_without_tokens_is_one() -> None:
    chunk = reader_of(True).read(event([], 0))
    assert chunk == Chunk(
        token_ids=array("i"), logprobs=array("f"), weight_version="a.1", finish=None
    )


def test_the_stops_of_many_tools_are_cut_to_what_the_server_takes() -> None:
    body = generate_request(
        rid="r", input_ids=[1], sampling=SamplingParams(), max_new_tokens=1,
        stop_token_ids=[], stop=[f"</{number}>" for number in range(40)],
    )  # fmt: skip
    assert body["sampling_params"]["stop"] == [f"</{number}>" for number in range(32)]


def raw(**changes: object) -> dict[str, Any]:
    """A true event of two tokens, decoded, with other values in its meta_info."""
    body = orjson.loads(event([1, 2], 2))
    body["meta_info"] |= changes
    return dict(body)


def with_id(token: object) -> bytes:
    """The second token is `token`, in both places."""
    body = raw(output_token_logprobs=[[-0.5, 1, None], [-0.5, token, None]])
    return orjson.dumps({**body, "output_ids": [1, token]})


def with_logprob(value: bytes) -> bytes:
    body = raw(output_token_logprobs=[[-0.5, 1, None], ["VALUE", 2, None]])
    return orjson.dumps(body).replace(b'"VALUE"', value)


@pytest.mark.parametrize(
    "token", [-5, 2**40, 2**70, 65.5, 65.0, "65", None, True, [65], {}, VOCABULARY]
)
def test_what_is_no_token_of_the_vocabulary_is_the_servers_fault(token: object) -> None:
    payload = with_id(token) if token != 2**70 else with_id(7).replace(b"7", str(2**70).encode())
    for incremental in (True, False):
        reader = reader_of(incremental)
        with pytest.raises(WireError) as caught:
            reader.read(payload)
        assert caught.value.retryable


@pytest.mark.parametrize(
    "value",
    [b"-1e300", b"NaN", b"-Infinity", b"+5", b"5", b"0.01", b"1e999", b"null", b'"x"', b"[]"],
)
def test_what_is_no_log_probability_is_the_servers_fault(value: bytes) -> None:
    with pytest.raises(WireError):
        reader_of(True).read(with_logprob(value))


def test_a_log_probability_that_rounding_put_above_zero_is_zero() -> None:
    chunk = reader_of(True).read(with_logprob(b"0.0005"))
    assert list(chunk.logprobs) == [-0.5, 0.0]
    assert (chunk.logprobs.typecode, chunk.token_ids.typecode) == ("f", "i")


def test_more_tokens_than_asked_for_are_the_servers_fault() -> None:
    reader = reader_of(True, most=3)
    reader.read(event([1, 2], 2))
    with pytest.raises(WireError, match="4 tokens came, 3 were"):
        reader.read(event([3, 4], 4))


@pytest.mark.parametrize(
    "change",
    [
        {"finish_reason": "stop"},
        {"finish_reason": []},
        {"finish_reason": {}},
        {"finish_reason": {"type": 3}},
        {"finish_reason": {"type": "made up"}},
        {"finish_reason": {"type": "stop", "matched": 2.5}},
        {"finish_reason": {"type": "stop", "matched": -1}},
        {"finish_reason": {"type": "stop", "matched": VOCABULARY}},
        {"finish_reason": {"type": "stop", "matched": ["a"]}},
        {"finish_reason": {"type": "stop", "matched": {}}},
        {"completion_tokens": "2"},
        {"completion_tokens": None},
        {"completion_tokens": 2.5},
        {"completion_tokens": True},
        {"output_token_logprobs": "x"},
        {"output_token_logprobs": None},
        {"output_token_logprobs": [[-0.5], [-0.5]]},
        {"output_token_logprobs": [-0.5, -0.5]},
        {"output_token_logprobs": [[-0.5, 1, None, 4], [-0.5, 2, None, 4]]},
        {"weight_version": 7},
        {"weight_version": "v" * 300},
        {"weight_versions": "a.1"},
        {"weight_versions": [{"version": "a.1"}]},
        {"weight_versions": [{"version": "a.1", "start": -1, "end": 2}]},
        {"weight_versions": [{"version": "a.1", "start": 2, "end": 1}]},
        {"weight_versions": [{"version": "a.1", "start": 0, "end": 10**9}]},
        {
            "weight_versions": [
                {"version": "a.1", "start": 0, "end": 2},
                {"version": "a.2", "start": 1, "end": 2},
            ]
        },
        {"prompt_tokens": -1},
        {"prompt_tokens": "9"},
    ],
    ids=str,
)
def test_a_field_of_another_kind_is_the_servers_fault(change: dict[str, Any]) -> None:
    with pytest.raises(WireError):
        reader_of(True).read(orjson.dumps(raw(**change)))


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"null",
        b"[]",
        b"7",
        b'"x"',
        b"\xff\xfe",
        b'{"meta_info": null, "output_ids": null}',
        b'{"output_ids": [1]}',
        b'{"output_ids": [1], "meta_info": []}',
        b'{"output_ids": [1], "x": ' + b"[" * 200_000,
        b'{"error": ' + b'{"a":' * 200_000,
        b'{"output_ids": [' + b"9" * 100_000 + b"]}",
    ],
    ids=lambda payload: repr(payload[:24]),
)
def test_garbage_is_the_servers_fault(payload: bytes) -> None:
    with pytest.raises(WireError):
        reader_of(True).read(payload)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists))
def test_any_value_in_any_field_is_a_chunk_or_the_servers_fault(value: Any) -> None:
    import json

    for where in ("output_ids", "meta_info", "prompt_token_ids", "error"):
        with contextlib.suppress(WireError):
            reader_of(True).read(json.dumps({**raw(), where: value}).encode())
    for where in raw()["meta_info"]:
        with contextlib.suppress(WireError):
            reader_of(True).read(json.dumps(raw(**{where: value})).encode())


def test_a_prompt_outside_the_vocabulary_is_the_servers_fault() -> None:
    with pytest.raises(WireError, match="Expected `int`"):
        reader_of(True).read(orjson.dumps({**raw(), "prompt_token_ids": [1, VOCABULARY]}))


def test_a_stream_that_only_pretends_to_go_on_is_found_out() -> None:
    reader = reader_of(True)
    for _ in range(MAX_EMPTY_EVENTS):
        reader.read(event([], 0))
    with pytest.raises(WireError, match="brought no token"):
        reader.read(event([], 0))


def test_an_event_without_end_is_refused_at_the_limit_in_linear_time() -> None:
    splitter = EventSplitter(limit=4 << 20)
    began = time.perf_counter()
    with pytest.raises(WireError, match="more than 4194304 bytes"):
        for _ in range(1 << 20):
            splitter.feed(b"data: xx")
    assert time.perf_counter() - began < 5  # looking at all of it each time takes minutes


def test_a_whole_event_beyond_the_limit_is_refused_too() -> None:
    for pieces in ([b"data: " + b"x" * 200 + b"\n\n"], [b"data: ", b"x" * 200 + b"\n\n"]):
        splitter = EventSplitter(limit=100)
        with pytest.raises(WireError, match="more than 100 bytes"):
            for one in pieces:
                splitter.feed(one)


def test_the_bytes_of_a_request_hold_its_ids() -> None:
    ids = array("i", [5, 6, 300])
    body = generate_request(
        rid="r", input_ids=ids, sampling=SamplingParams(), max_new_tokens=1, stop_token_ids=[]
    )
    assert orjson.loads(encode(body))["input_ids"] == [5, 6, 300]
