"""What a pool of an OpenAI-compatible API finds at its start."""

from __future__ import annotations

from typing import Any

import pytest

from engine.core.sampler.openai.pool import OpenAIPool
from engine.core.text.conversation_codec import ConversationCodec
from engine.core.text.packed import PackedBytes
from engine.errors import StartupError
from tests.support.net import free_port
from tests.support.openai_api import Api, answer, api, chat, listed
from tests.support.openai_talk import talk
from toolwright.recipe import Sampler


async def test_a_busy_start_is_waited_for_and_then_told_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("engine.core.sampler.openai.pool.START_SECONDS", 0.01)
    busy = answer(429, b"slow", Retry_After="0.02")
    async with api(chat("x"), models=busy) as here:
        with pytest.raises(StartupError, match="pauses in a row: try again later"):
            async with talk(here):
                pass


@pytest.mark.parametrize(
    ("models", "table", "words"),
    [
        (listed("a", "b"), {}, "name one in sampler.model, of a, b"),
        (listed("a"), {"model": "b"}, "does not serve 'b', but a"),
        (answer(404, {}), {}, "does not list its models"),
        (answer(401, {}), {}, "sampler.key_env"),
        (answer(200, b"<html>", Content_Type="text/html"), {}, "web page"),
        (answer(404, b"<html>", Content_Type="text/html"), {}, "web page"),
        (answer(200, {"data": 7}), {}, "not as an OpenAI-compatible API"),
        (answer(200, b"\xff"), {}, "not as an OpenAI-compatible API"),
        (b"", {"key_env": "TOOLWRIGHT_NO_SUCH_KEY"}, "has no TOOLWRIGHT_NO_SUCH_KEY"),
    ],
)
async def test_what_a_start_finds(models: bytes, table: dict[str, Any], words: str) -> None:
    async with api(chat("x"), models=models) as here:
        with pytest.raises(StartupError) as raised:
            async with talk(here, **table):
                pass
    assert words in str(raised.value)


async def test_nobody_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.core.sampler.openai.pool.START_SECONDS", 0.1)
    with pytest.raises(StartupError, match="connection refused; start it or correct"):
        async with talk(Api(url=f"http://127.0.0.1:{free_port()}")):
            pass


async def test_an_unlisted_model_of_a_hosted_api_is_asked_for() -> None:
    many = listed(*(f"m{number}" for number in range(50)))
    async with api(chat("x"), models=many) as here, talk(here, model="m7:fast") as one:
        await one.act()
    assert here.asked[0].body["model"] == "m7:fast"


@pytest.mark.parametrize("bad", ["line\nbreak", "ключ", " "])
def test_a_key_that_no_header_holds(bad: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLWRIGHT_TEST_KEY", bad)
    codec = ConversationCodec(PackedBytes())
    table = Sampler(api="openai-chat", endpoints=("http://x",), key_env="TOOLWRIGHT_TEST_KEY")
    with pytest.raises(StartupError, match="TOOLWRIGHT_TEST_KEY"):
        OpenAIPool(table, codec, vocab_size=codec.vocab_size)
