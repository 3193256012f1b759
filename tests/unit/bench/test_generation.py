"""A reply ends where it must, hands out every token once, and knows its weight versions."""

from __future__ import annotations

from itertools import repeat
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from bench.scripted.generation import Generation
from bench.scripted.script import ScriptItem, tokens
from bench.scripted.types import FinishReason, GenerateRequest, ScriptRequest, WeightSpan


def generation(reply: list[ScriptItem], eos: frozenset[int] = frozenset(), **changes: Any) -> Any:
    values: dict[str, Any] = {
        "rid": "r",
        "input_ids": (1,),
        "stream": True,
        "return_logprob": True,
        "return_prompt_token_ids": False,
        "max_new_tokens": 100,
        "stop_token_ids": frozenset(),
        "ignore_eos": False,
        "stream_interval": 1,
        "conversation": "r",
        "params": {},
        **changes,
    }
    said = ScriptRequest(rid="r", conversation="r", turn=0, input_ids=(1,), params={})
    return Generation(
        request=GenerateRequest(**values),
        source=tokens(lambda _: reply, said),
        delays=repeat(0.0),
        eos=eos,
        started=0.0,
        cached_tokens=0,
    )


def ids(reply: Generation) -> list[int]:
    return [token.id for token in reply.tokens]


def event(reply: Generation, *, incremental: bool = True, version: str = "v") -> dict[str, Any]:
    raw = reply.take(incremental=incremental, weight_version=version, now=1.0, wall=2.0)
    body: dict[str, Any] = orjson.loads(raw.removeprefix(b"data: "))
    return body


def test_stops_at_a_stop_id_and_includes_it() -> None:
    reply = generation([5, 6, 7, 8], stop_token_ids=frozenset({7}))
    reply.grow(10, "v")
    assert ids(reply) == [5, 6, 7]
    assert reply.finish == FinishReason("stop", matched=7)


def test_stops_at_end_of_sequence_unless_told_to_ignore_it() -> None:
    reply = generation([5, 6, 7], eos=frozenset({6}))
    reply.grow(10, "v")
    assert ids(reply) == [5, 6]
    reply = generation([5, 6, 7], eos=frozenset({6}), ignore_eos=True, max_new_tokens=3)
    reply.grow(10, "v")
    assert ids(reply) == [5, 6, 7]


def test_ends_at_the_limit() -> None:
    reply = generation([5, 6, 7], max_new_tokens=2)
    reply.grow(10, "v")
    assert ids(reply) == [5, 6]
    assert reply.finish == FinishReason("length", length=2)


def test_a_script_that_ends_ends_the_reply_with_its_last_token() -> None:
    reply = generation([5, 6])
    reply.grow(1, "v")
    assert reply.finish is None
    reply.grow(1, "v")
    assert reply.finish == FinishReason("stop", matched=6)
    assert generation([]).finish == FinishReason("stop")


def test_a_script_that_fails_ends_the_reply_as_an_abort() -> None:
    reply = generation([5, 6, "x"])  # type: ignore[list-item]
    reply.grow(10, "v")
    assert reply.finish is not None
    assert reply.finish.kind == "abort"
    assert "position 2" in (reply.finish.message or "")


def test_abort_lets_one_more_token_out() -> None:
    reply = generation([5, 6, 7, 8])
    reply.grow(2, "v")
    reply.abort("v")
    assert ids(reply) == [5, 6, 7]
    assert reply.finish == FinishReason("abort", message="Aborted")
    reply.grow(5, "v")
    assert ids(reply) == [5, 6, 7]


def test_weight_spans_follow_the_tokens() -> None:
    reply = generation([5, 6, 7, 8, 9, 10])
    reply.grow(2, "one")
    reply.grow(1, "two")
    reply.grow(1, "two")
    assert reply.spans == [
        WeightSpan(version="one", start=0, end=2),
        WeightSpan(version="two", start=2, end=4),
    ]


def test_stream_interval_holds_chunks_back_but_not_the_first_nor_the_last() -> None:
    reply = generation(list(range(6)), stream_interval=3)
    woken = []
    while reply.finish is None:
        reply.grow(1, "v")
        if reply.changed.is_set():
            woken.append(len(event(reply)["output_ids"]))
    assert woken == [1, 3, 2]


@given(
    reply=st.lists(st.integers(0, 9), min_size=1, max_size=30),
    steps=st.lists(st.integers(1, 4), min_size=30, max_size=30),
    takes=st.lists(st.booleans(), min_size=30, max_size=30),
)
def test_both_shapes_give_the_same_reply(
    reply: list[int], steps: list[int], takes: list[bool]
) -> None:
    delta, whole = generation(list(reply)), generation(list(reply))
    gathered: list[int] = []
    last: dict[str, Any] = {}
    for step, take in zip(steps, takes, strict=True):
        delta.grow(step, "v")
        whole.grow(step, "v")
        if take or delta.finish is not None:
            gathered += event(delta)["output_ids"]
            last = event(whole, incremental=False)
        if delta.finish is not None:
            break
    assert gathered == last["output_ids"] == reply
    assert last["meta_info"]["completion_tokens"] == len(reply)
