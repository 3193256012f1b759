"""The pool against an API that breaks, refuses, or keeps still."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest

from engine.core.sampler.openai.api_endpoint import MOST_ALIKE
from engine.core.sampler.openai.refusals import EndpointUnusable
from engine.errors import SamplerFailed
from tests.support.openai_api import (
    STREAM,
    Play,
    answer,
    api,
    chat,
    event,
    listed,
    silent,
    text,
)
from tests.support.openai_talk import END, talk

KEY = "sk-very-secret-0123"
SLASHED = "sk-very/secret-0123"
"""JSON may spell it with a backslash."""


def breaks(data: bytes) -> Play:
    async def play(writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM + data)
        await writer.drain()
        await asyncio.sleep(0.02)
        writer.transport.abort()

    return play


async def test_a_broken_stream_of_completions_goes_on_from_its_text() -> None:
    broken = breaks(event(text="One, "))
    async with api(broken, text("two.")) as here, talk(here, "openai-completions") as one:
        assert await one.say() == "One, two." + END
    assert here.asked[1].body["prompt"].endswith("One, ")
    assert here.asked[1].body["max_tokens"] == 500 - 2


async def test_a_broken_chat_begins_anew_where_the_server_does_not_continue() -> None:
    broken = breaks(event(delta={"content": "One, "}))
    async with api(broken, chat("Two.")) as here, talk(here) as one:
        assert await one.say() == "Two." + END
    assert len(here.asked[1].body["messages"]) == 1
    models = listed("tiny", owned_by="llamacpp")
    async with api(broken, chat("two."), models=models) as here, talk(here) as one:
        assert await one.say() == "One, two." + END
    assert here.asked[1].body["messages"][-1] == {"role": "assistant", "content": "One, "}


@pytest.mark.parametrize(
    "first",
    [
        answer(503, b"busy", Retry_After="0.01"),
        STREAM + b"data: {broken\n\n",
        STREAM + b'data: {"error": {"message": "worker died", "code": 500}}\n\n',
        STREAM + event(delta={"content": "half"}),
        STREAM + b"data: " + b"x" * (5 << 20),
        STREAM
        + event(delta={"tool_calls": [{"index": 0}]}) * 20_100
        + event(delta={}, finish_reason="stop"),
        b"",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Type: text/event-stream\r\n"
        b"Connection: close\r\n\r\n\x1f\x8b\x08\x00bomb",
    ],
    ids=range(9),
)
async def test_after_a_fault_it_is_asked_again(first: bytes) -> None:
    async with api(first, chat("Yes.")) as here, talk(here) as one:
        assert await one.say() == "Yes." + END
        (told,) = one.pool.statistics().values()
        assert sum(told["failures"].values()) == 1
    assert len(here.asked) == 2


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (answer(401, {"error": {"message": f"wrong {KEY}"}}), "TOOLWRIGHT_TEST_KEY"),
        (answer(404, {"error": {"message": "model not found"}}), "sampler.model"),
        (answer(200, b"<!DOCTYPE html>", Content_Type="text/html"), "web page"),
        (answer(302, b"", Location="/login"), "/login"),
        (answer(402, {"error": "empty"}), "top the account up"),
    ],
)
async def test_what_no_request_can_succeed_with_ends_the_evaluation(
    said: bytes, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLWRIGHT_TEST_KEY", KEY)
    async with api(said) as here, talk(here, key_env="TOOLWRIGHT_TEST_KEY") as one:
        with pytest.raises(EndpointUnusable) as raised:
            await one.act()
    assert words in str(raised.value)
    assert KEY not in str(raised.value)
    assert here.asked[0].headers["Authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(
    "said",
    [
        answer(401, b'{"error": {"message": "wrong sk-very\\/secret-0123"}}'),
        answer(200, b"no JSON: sk-very\\/secret-0123"),
        answer(302, b"", Location=f"/login?key={SLASHED}"),
        STREAM + f"data: {SLASHED}\n\n".encode(),
        STREAM + b'data: {"error": {"message": "sk-very\\/secret-0123"}}\n\n',
    ],
    ids=range(5),
)
async def test_no_sentence_has_the_key(said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLWRIGHT_TEST_KEY", SLASHED)
    async with (
        api(said) as here,
        talk(here, key_env="TOOLWRIGHT_TEST_KEY", patience_s=0.01) as one,
    ):
        with pytest.raises((EndpointUnusable, SamplerFailed)) as raised:
            await one.act()
    found = str(raised.value)
    assert "secret" not in found
    assert "sk-very" not in found
    assert "***" in found


def never(message: str) -> bytes:
    return answer(400, {"error": {"message": message}})


async def test_what_every_request_is_refused_for_ends_the_evaluation() -> None:
    async with api(never("'temperature' does not support 0")) as here, talk(here) as one:
        for _ in range(MOST_ALIKE - 1):
            with pytest.raises(SamplerFailed):
                await one.act()
        with pytest.raises(EndpointUnusable, match=r"does not support 0.*--fresh"):
            await one.act()


@pytest.mark.parametrize(
    "plays",
    [
        [never("maximum context length is 8")],
        [chat("x"), never("never 'temperature'")],
        [never(f"bad word {number}") for number in range(MOST_ALIKE + 2)],
    ],
    ids=["length", "served", "other words"],
)
async def test_refusals_of_some_rows_end_only_those(plays: list[bytes]) -> None:
    async with api(*plays) as here, talk(here) as one:
        for _ in range(MOST_ALIKE + 2):
            try:
                await one.act()
                one.observe("next")
            except SamplerFailed as error:
                assert error.permanent
        assert len(here.asked) == MOST_ALIKE + 2


async def test_a_pause_that_the_server_asks_for_takes_no_patience() -> None:
    busy, still = (answer(429, b"slow", Retry_After=seconds) for seconds in ("0.7", "0"))
    async with api(busy, still, chat("Yes.")) as here, talk(here, patience_s=0.5) as one:
        assert await one.say() == "Yes." + END


async def test_pauses_without_end_are_given_up() -> None:
    busy = answer(429, b"slow", Retry_After="0.01")
    async with api(busy) as here, talk(here, patience_s=0.2) as one:
        with pytest.raises(SamplerFailed, match="429"):
            await one.act()


async def test_comments_do_not_break_the_silence() -> None:
    async with api(silent, chat("Yes.")) as here, talk(here, timeout_s=1.0) as one:
        assert await one.say() == "Yes." + END
        (told,) = one.pool.statistics().values()
        assert told["failures"]["silent"] >= 1


async def test_of_two_endpoints_the_other_one_goes_on() -> None:
    async with (
        api(breaks(b"")) as bad,
        api(chat("Yes.")) as good,
        talk(bad, endpoints=(bad.url, good.url), patience_s=2.0) as one,
    ):
        assert await one.say() == "Yes." + END


async def test_a_connection_that_never_comes_is_not_told_as_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def stuck(*_: Any, **__: Any) -> Any:
        raise aiohttp.ConnectionTimeoutError("connecting")

    async with api(chat("x")) as here, talk(here, patience_s=0.01) as one:
        monkeypatch.setattr(aiohttp.ClientSession, "post", stuck)
        with pytest.raises(SamplerFailed, match="no connection within 10 s"):
            await one.act()
