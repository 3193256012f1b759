"""What a pool of an OpenAI-compatible API finds at its start, and what a refusal means."""

from __future__ import annotations

import datetime
from email.utils import format_datetime
from typing import Any

import pytest

from engine.core.sampler.openai.pool import OpenAIPool
from engine.core.sampler.openai.refusals import (
    FIRST_PAUSE_S,
    LONGEST_PAUSE_S,
    NoCredit,
    NotFound,
    RetryLater,
    WrongAddress,
    WrongKey,
    refusal,
)
from engine.core.sampler.wire.client import ServerRefused
from engine.core.sampler.wire.events import WireError
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
        (answer(200, {"data": 7}), {}, "not as an OpenAI-compatible API"),
        (b"", {"key_env": "TOOLWRIGHT_NO_SUCH_KEY"}, "has no TOOLWRIGHT_NO_SUCH_KEY"),
    ],
)
async def test_what_a_start_finds(models: bytes, table: dict[str, Any], words: str) -> None:
    async with api(chat("x"), models=models) as here:
        with pytest.raises(StartupError) as raised:
            async with talk(here, **table):
                pass
    assert words in str(raised.value)


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


def refused(status: int, body: bytes = b"", **headers: str) -> Exception:
    return refusal(
        "http://x/v1/chat", status, {n.replace("_", "-"): v for n, v in headers.items()}, body,
        key_env="API_KEY", model="tiny",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("status", "body", "kind", "words"),
    [
        (401, b'{"error": {"message": "no key"}}', WrongKey, ["no key", "API_KEY"]),
        (404, b'{"detail": "Not Found"}', NotFound, ["'tiny'", "sampler.model", "/v1"]),
        (405, b"", NotFound, ["sampler.endpoints"]),
        (200, b"", ServerRefused, []),
        (422, b'[{"error": {"message": "worse"}}]', ServerRefused, ["worse"]),
        (404, b"<!DOCTYPE html><html>", WrongAddress, ["web page", "sampler.endpoints"]),
        (402, b"", NoCredit, ["top the account up"]),
        (429, b'{"error": {"code": "insufficient_quota"}}', NoCredit, []),
        (408, b"\xff\xfe", WireError, ["408"]),
    ],
)
def test_the_kind_and_the_mend(
    status: int, body: bytes, kind: type[Exception], words: list[str]
) -> None:
    found = refused(status, body)
    assert type(found) is kind
    assert all(word in str(found) for word in words)


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("3", 3.0), ("0.5", 0.5), ("0", 0.0), ("1e9", LONGEST_PAUSE_S), ("inf", LONGEST_PAUSE_S),
        ("nan", FIRST_PAUSE_S), ("-4", FIRST_PAUSE_S), ("soon", FIRST_PAUSE_S), ("", FIRST_PAUSE_S),
        ("99999999999999999999", LONGEST_PAUSE_S), ("Mon, 99 Nov", FIRST_PAUSE_S),
    ],
)  # fmt: skip
def test_retry_after_is_bounded(said: str, seconds: float) -> None:
    found = refused(429, Retry_After=said)
    assert isinstance(found, RetryLater)
    assert found.seconds == seconds


def test_retry_after_may_be_a_date() -> None:
    soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=30)
    found = refused(503, Retry_After=format_datetime(soon, usegmt=True))
    assert isinstance(found, RetryLater)
    assert 20 < found.seconds <= 30
    assert isinstance(refused(429), RetryLater)
    assert not isinstance(refused(503), RetryLater)


async def test_nobody_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.core.sampler.openai.pool.START_SECONDS", 0.1)
    with pytest.raises(StartupError, match="connection refused; start it or correct"):
        async with talk(Api(url=f"http://127.0.0.1:{free_port()}")):
            pass
