"""What is refused, and how."""

from __future__ import annotations

from typing import Any

from tests.contract import schema
from tests.contract.sampler.target import Target, finished

SCHEMA_REFUSALS: list[dict[str, Any]] = [
    {"sampling_params": {"max_tokens": 4}},
    {"sampling_params": {"seed": 4}},
    {"sampling_params": {"max_new_tokens": "5"}},
    {"sampling_params": {"temperature": "1"}},
    {"sampling_params": {"ignore_eos": 1}},
    {"sampling_params": {"stop_token_ids": ["a"]}},
    {"input_ids": ["a"]},
    {"input_ids": [1.0]},
    {"input_ids": "abc"},
    {"return_logprob": "yes"},
    {"stream": 1},
]
VALUE_REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"input_ids": []}, "input_ids"),
    ({"sampling_params": {"temperature": -1.0}}, "temperature"),
    ({"sampling_params": {"top_p": 2.0}}, "top_p"),
    ({"sampling_params": {"top_k": 0}}, "top_k"),
    ({"sampling_params": {"min_p": -0.5}}, "min_p"),
    ({"sampling_params": {"repetition_penalty": 0.0}}, "repetition_penalty"),
    ({"sampling_params": {"max_new_tokens": -1}}, "max_new_tokens"),
    ({"sampling_params": {"max_new_tokens": 10**6}}, "context length"),
    ({"input_ids": [5] * 5000}, "context length"),
]


async def check_schema_refusals(t: Target) -> None:
    """What the schema refuses is a 400, streaming or not, and no key passes by mistake."""
    for change in SCHEMA_REFUSALS:
        body = {**t.body("schema"), **change}
        assert schema.refusal(body) is not None, change
        status, answer = await t.client.post("/generate", body)
        assert status == 400, change
        assert "error" in answer or answer.get("object") == "error", change
        if "stream" not in change:
            status, answer = await t.client.post("/generate", {**body, "stream": True})
            assert status == 400, change


async def check_unknown_sampling_key_is_named(t: Target) -> None:
    """The 400 says which key, in the schema's own words."""
    body = {**t.body("key"), "sampling_params": {"max_tokens": 4}}
    status, answer = await t.client.post("/generate", body)
    assert (status, answer) == (400, {"error": schema.refusal(body)})


async def check_unknown_top_level_key_passes(t: Target) -> None:
    """Unknown keys beside sampling_params are ignored."""
    status, _ = await t.client.post("/generate", t.body("top", 1, not_a_key=1))
    assert status == 200


async def check_value_refusals(t: Target) -> None:
    """What is well formed and impossible: 400, or one error event in a stream of status 200."""
    for change, word in VALUE_REFUSALS:
        body = {**t.body("value"), **change}
        assert schema.refusal(body) is None, change
        status, answer = await t.client.post("/generate", body)
        assert status == 400, change
        assert word in answer["error"]["message"], change
        stream = await t.client.stream(body)
        assert (stream.status, stream.done, len(stream.events)) == (200, True, 1), change
        schema.check_error_event(stream.last)
        assert word in stream.last["error"]["message"], change


async def check_duplicate_rid(t: Target) -> None:
    """An id in flight is refused a second time; the first reply goes on."""
    body = t.body("twin")
    async with t.client.streaming(body) as (_, task):
        second = await t.client.stream(body)
        assert "Duplicate" in second.last["error"]["message"]
        assert not task.done()
        await t.abort(body["rid"])
        t.check_whole(await finished(task))
