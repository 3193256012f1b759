"""The server records what it saw, serves a conversation turn by turn, and stops cleanly."""

from __future__ import annotations

import asyncio
import base64
import time
from typing import Any

import aiohttp
import pytest

from bench.scripted import ScriptedSampler, ScriptRequest, StartError, Timing, cycle, replies
from bench.scripted.types import GenerateRequest
from tests.support.waiting import until


def body(ids: list[int], rid: str, **changes: Any) -> dict[str, Any]:
    return {
        "rid": rid,
        "input_ids": ids,
        "session_id": "s",
        "sampling_params": {"max_new_tokens": 500, "stop_token_ids": [2]},
        **changes,
    }


async def ask(
    session: aiohttp.ClientSession, url: str, sent: dict[str, Any], method: str = "POST"
) -> dict[str, Any]:
    async with session.request(method, url + "/generate", json=sent) as answer:
        parsed: dict[str, Any] = await answer.json()
        return parsed


async def test_turns_and_the_prefix_property() -> None:
    async with (
        ScriptedSampler(script=replies([[5, 2], [6, 2]])) as sampler,
        aiohttp.ClientSession() as session,
    ):
        ids = [1]
        for turn in range(2):
            answer = await ask(session, sampler.url, body(ids, f"r{turn}"), "PUT")
            ids = ids + answer["output_ids"] + [9]
        first, second = sampler.requests
        assert second.input_ids[: len(first.input_ids) + 2] == (*first.input_ids, 5, 2)
        assert ids == [1, 5, 2, 9, 6, 2, 9]


async def test_a_watch_is_told_when_a_streamed_reply_was_asked_for_and_written() -> None:
    told: list[tuple[object, ...]] = []

    class Watch:
        def asked(self, request: GenerateRequest) -> None:
            told.append(("asked", request.rid))

        def replied(self, request: GenerateRequest, read_ns: int, written_ns: int) -> None:
            told.append(("replied", request.rid))
            assert 0.05 <= (written_ns - read_ns) / 1e9 < 5

    timing = Timing(first_token_delay=0.06)
    async with (
        ScriptedSampler(script=replies([[5, 6, 2]]), timing=timing, watch=Watch()) as sampler,
        aiohttp.ClientSession() as session,
    ):
        sent = body([1], "r0", stream=True)
        async with session.post(sampler.url + "/generate", json=sent) as answer:
            await answer.read()
    assert told == [("asked", "r0"), ("replied", "r0")]


async def test_the_script_sees_the_images() -> None:
    png = b"\x89PNG\r\n\x1a\n"
    data = f"data:image/png;base64,{base64.b64encode(png).decode()}"
    async with (
        ScriptedSampler(script=lambda request: [len(request.images[0])], image_token=9) as sampler,
        aiohttp.ClientSession() as session,
    ):
        answer = await ask(session, sampler.url, body([1, 9], "r", image_data=[data]))
    assert answer["output_ids"] == [len(png)]
    assert sampler.requests[0].image_data == (data,)


async def test_the_script_sees_the_request() -> None:
    seen: list[ScriptRequest] = []

    def script(request: ScriptRequest) -> list[int]:
        seen.append(request)
        return [2]

    async with (
        ScriptedSampler(script=script) as sampler,
        aiohttp.ClientSession() as session,
    ):
        await ask(session, sampler.url, body([1, 4], "r"))
    assert (seen[0].rid, seen[0].conversation, seen[0].input_ids) == ("r", "s", (1, 4))
    assert seen[0].params["stop_token_ids"] == [2]


async def test_a_failing_script_ends_its_own_reply_only() -> None:
    def script(request: ScriptRequest) -> list[int]:
        return [5, 2] if request.rid == "good" else [5, 1 // 0]

    async with (
        ScriptedSampler(script=script) as sampler,
        aiohttp.ClientSession() as session,
    ):
        bad = await ask(session, sampler.url, body([1], "bad"))
        good = await ask(session, sampler.url, body([1], "good", session_id="t"))
    assert "ZeroDivisionError" in bad["meta_info"]["finish_reason"]["message"]
    assert good["output_ids"] == [5, 2]


async def test_ids_outside_the_vocabulary_are_refused() -> None:
    async with (
        ScriptedSampler(script=replies([[2]]), vocab_size=10) as sampler,
        aiohttp.ClientSession() as session,
    ):
        for bad in (10, -1):
            answer = await ask(session, sampler.url, body([1, bad], "r"))
            assert f"input id {bad}" in answer["error"]["message"]


async def test_the_record_is_bounded() -> None:
    async with (
        ScriptedSampler(script=replies([[2]]), record=2) as sampler,
        aiohttp.ClientSession() as session,
    ):
        for number in range(4):
            await ask(session, sampler.url, body([1], f"r{number}"))
        assert [(seen.index, seen.rid) for seen in sampler.requests] == [(2, "r2"), (3, "r3")]


async def test_a_taken_port_is_named() -> None:
    async with ScriptedSampler(script=replies([[2]])) as sampler:
        port = int(sampler.url.rpartition(":")[2])
        with pytest.raises(StartError, match=str(port)):
            async with ScriptedSampler(script=replies([[2]]), port=port):
                pass


async def test_leaving_ends_streams_and_frees_the_port() -> None:
    slow = Timing(tokens_per_second=1)
    async with aiohttp.ClientSession() as session:
        async with ScriptedSampler(script=cycle(stop_id=2, every=9), timing=slow) as sampler:
            url = sampler.url
            pending = asyncio.create_task(ask(session, url, body([1], "r")))
            await until(lambda: sampler.scheduler.running == 1, "the reply")
            began = time.monotonic()
        assert time.monotonic() - began < 2
        with pytest.raises(aiohttp.ClientError):
            await pending
        with pytest.raises(aiohttp.ClientError):
            await ask(session, url, body([1], "again"))


async def test_headers_come_before_a_pause_ends() -> None:
    async with (
        ScriptedSampler(script=replies([[2]])) as sampler,
        aiohttp.ClientSession() as session,
    ):
        await session.post(sampler.url + "/pause_generation", json={"mode": "in_place"})
        async with asyncio.timeout(2):
            answer = await session.post(sampler.url + "/generate", json=body([1], "r", stream=True))
        assert answer.status == 200
        assert sampler.scheduler.held == 1
        await session.post(sampler.url + "/continue_generation")
        assert b"[DONE]" in await answer.read()


async def test_the_metrics_count_what_was_sampled_also_for_one_who_left() -> None:
    timing = Timing(tokens_per_second=100)
    async with (
        ScriptedSampler(script=cycle(stop_id=2, every=1000), timing=timing) as sampler,
        aiohttp.ClientSession() as session,
    ):
        sent = body([1], "r", stream=True, return_logprob=True)
        async with session.post(sampler.url + "/generate", json=sent) as answer:
            await answer.content.readline()
        while sampler.scheduler.running:  # noqa: ASYNC110 - the server is not told to say so
            await asyncio.sleep(0.01)
        before = sampler.scheduler.sampled
        whole = await ask(
            session, sampler.url, body([1], "s", sampling_params={"max_new_tokens": 3})
        )
        assert len(whole["output_ids"]) == 3
        async with session.get(sampler.url + "/metrics") as page:
            assert f"}} {float(before + 3)}" in await page.text()
        assert before >= 1
