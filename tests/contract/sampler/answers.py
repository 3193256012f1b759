"""What a reply holds."""

from __future__ import annotations

import itertools

from tests.contract import schema
from tests.contract.sampler.target import PROMPT, VOCABULARY, Target, spans_cover


async def check_stream_shape(t: Target) -> None:
    """Every event is SGLang's own, and the events add up to the reply."""
    body = t.body("shape", 8)
    stream = await t.client.stream(body)
    t.check_whole(stream)
    assert stream.finish == {"type": "length", "length": 8}
    assert len(stream.ids(incremental=t.incremental)) == 8
    for event in stream.events:
        meta = event["meta_info"]
        assert meta["id"] == body["rid"]
        assert meta["prompt_tokens"] == len(PROMPT)
        assert isinstance(meta["weight_version"], str)
        assert meta["num_retractions"] == 0
        assert meta["input_token_logprobs"] == []
    assert "weight_versions" not in stream.events[0]["meta_info"]


async def check_totals_are_absolute(t: Target) -> None:
    """Lists are deltas or cumulative as the server says; totals always count the whole reply."""
    info = (await t.client.get("/server_info"))[1]
    assert info["incremental_streaming_output"] is t.incremental
    stream = await t.client.stream(t.body("totals", 12))
    seen = 0
    for event in stream.events:
        shown = len(event["output_ids"])
        seen = seen + shown if t.incremental else shown
        meta = event["meta_info"]
        assert meta["completion_tokens"] == meta["output_token_logprobs_length"] == seen
        assert len(meta["output_token_logprobs"]) == shown


async def check_without_streaming(t: Target) -> None:
    """One object with the whole reply."""
    status, answer = await t.client.post("/generate", t.body("plain", 6))
    assert status == 200
    schema.check_answer(answer)
    meta = answer["meta_info"]
    assert len(answer["output_ids"]) == meta["completion_tokens"] == 6
    assert [i for _, i, _ in meta["output_token_logprobs"]] == answer["output_ids"]
    spans_cover(meta["weight_versions"], 6)


async def check_without_logprobs(t: Target) -> None:
    """No log-prob keys unless they were asked for."""
    stream = await t.client.stream(t.body("bare", 3, return_logprob=False))
    assert all("output_token_logprobs" not in event["meta_info"] for event in stream.events)
    assert len(stream.ids(incremental=t.incremental)) == 3


async def check_top_logprobs(t: Target) -> None:
    """As many of the likeliest tokens at each place as were asked for, best first, in the stream's
    shape; the sampled token's log-prob is never above the best one's."""
    stream = await t.client.stream(t.body("tops", 6, top_logprobs_num=4))
    for event in stream.events:
        meta = event["meta_info"]
        tops, chosen = meta["output_top_logprobs"], meta["output_token_logprobs"]
        assert len(tops) == len(chosen) == len(event["output_ids"])
        for row, (logprob, _, _) in zip(tops, chosen, strict=True):
            values = [value for value, _, _ in row]
            assert len(row) == len({i for _, i, _ in row}) == 4
            assert values == sorted(values, reverse=True)
            assert logprob <= values[0] + 1e-5
    bare = await t.client.stream(t.body("no tops", 2))
    assert all("output_top_logprobs" not in event["meta_info"] for event in bare.events)


async def check_stop_token_is_included(t: Target) -> None:
    """The matched stop id is the last token, counted and with its log-prob."""
    stops = list(range(VOCABULARY // 2))
    params = {"stop_token_ids": stops, "ignore_eos": False}
    stream = await t.client.stream(t.body("stop", 200, params=params))
    t.check_whole(stream)
    ids = stream.ids(incremental=t.incremental)
    assert stream.finish == {"type": "stop", "matched": ids[-1]}
    assert ids[-1] in stops
    assert not set(ids[:-1]) & set(stops)


async def check_ignore_eos_ignores_stop_ids(t: Target) -> None:
    """ignore_eos switches stop_token_ids off as well: never send both."""
    params = {"stop_token_ids": list(range(VOCABULARY)), "ignore_eos": True}
    stream = await t.client.stream(t.body("ignore", 5, params=params))
    assert stream.finish == {"type": "length", "length": 5}


async def check_stop_beats_length(t: Target) -> None:
    """A stop id as the last allowed token is a stop."""
    params = {"stop_token_ids": list(range(VOCABULARY)), "ignore_eos": False}
    stream = await t.client.stream(t.body("both", 1, params=params))
    assert stream.finish is not None
    assert stream.finish["type"] == "stop"


async def check_no_new_tokens(t: Target) -> None:
    """max_new_tokens 0 is legal and gives an empty reply."""
    stream = await t.client.stream(t.body("zero", 0))
    assert stream.finish == {"type": "length", "length": 0}
    assert stream.ids(incremental=t.incremental) == []
    spans_cover(stream.last["meta_info"]["weight_versions"], 0)


async def check_stream_interval(t: Target) -> None:
    """The first token comes at once, then one event per interval."""
    stream = await t.client.stream(t.body("interval", 20, params={"stream_interval": 4}))
    totals = [event["meta_info"]["completion_tokens"] for event in stream.events]
    assert totals[0] == 1
    assert totals[-1] == 20
    assert all(later - earlier >= 4 for earlier, later in itertools.pairwise(totals[:-1]))


async def check_prompt_ids_on_request(t: Target) -> None:
    """return_prompt_token_ids echoes the prompt."""
    stream = await t.client.stream(t.body("echo", 2, return_prompt_token_ids=True))
    assert stream.last["prompt_token_ids"] == PROMPT


async def check_next_turn_hits_the_cache(t: Target) -> None:
    """A prompt that begins with a finished turn is mostly cached."""
    first = t.body("turn.one", 8, input_ids=[*range(40, 80)], session_id="turns")
    _, answer = await t.client.post("/generate", first)
    ids = [*first["input_ids"], *answer["output_ids"], 9, 9]
    second = t.body("turn.two", 2, input_ids=ids, session_id="turns")
    _, answer = await t.client.post("/generate", second)
    assert answer["meta_info"]["prompt_tokens"] == len(ids)
    assert answer["meta_info"]["cached_tokens"] >= len(first["input_ids"]) - 1
