"""The pool against an API that says what it is told to: whole actions, faults, refusals."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from engine.errors import SamplerFailed, StartupError
from engine.protocols.tagged import Tagged
from engine.sampler.openai.answers import EndpointUnusable
from engine.sampler.openai.endpoint import MOST_ALIKE
from engine.sampler.openai.pool import OpenAIPool
from engine.sampler.openai.text import TextAction
from engine.sampler.stops import StopTable
from engine.text.codec import HuggingFaceCodec
from engine.text.turns import PackedBytes, TurnCodec
from engine.types import Generated, Images
from tests.support.net import free_port
from tests.support.openai_api import (
    DONE,
    STREAM,
    Api,
    Play,
    answer,
    api,
    chat,
    event,
    listed,
    text,
    usage,
)
from toolwright.recipe import Sampler
from toolwright.recipe.spelling import url_fault
from toolwright.types import FinishKind, SamplingParams, Task

KEY = "sk-very-secret-0123"
SLASHED = "sk-very/secret-0123"
"""JSON may spell it with a backslash."""


class Talk:
    """One trajectory of Tagged: prompt, then actions and observations."""

    def __init__(self, pool: OpenAIPool, codec: Any, prompt: str = "How many?") -> None:
        self.pool = pool
        self.codec = codec
        self.protocol = Tagged()
        self.ids = array("i", self.protocol.prompt(Task(id="t", prompt=prompt), (), codec))
        self.stops = StopTable(["</python>", codec.end_of_turn], codec)

    async def act(self, most: int = 500, on_progress: Any = None, **sampling: Any) -> Generated:
        found = await self.pool.generate(
            key="t",
            token_ids=self.ids,
            sampling=SamplingParams(temperature=0.0, top_p=1.0, **sampling),
            max_new_tokens=most,
            stops=self.stops,
            on_action=lambda _generated: None,
            on_progress=on_progress,
        )
        self.ids = self.ids + found.token_ids
        return found

    async def say(self, most: int = 500, **sampling: Any) -> str:
        return str(self.codec.decode((await self.act(most, **sampling)).token_ids))

    def observe(self, words: str) -> None:
        head, tail = self.protocol.frame("</python>", self.codec)
        body = self.protocol.observation([words], self.codec)
        self.ids = self.ids + array("i", [*head, *body, *tail])


@asynccontextmanager
async def talk(here: Api, way: str = "openai-chat", **table: Any) -> AsyncIterator[Talk]:
    values: dict[str, Any] = {
        "endpoints": (here.url,), "tokenizer": "bytes", "patience_s": 5.0, "timeout_s": 5.0,
    }  # fmt: skip
    codec = TurnCodec(PackedBytes())
    made = Sampler(api=way, **{**values, **table})  # type: ignore[arg-type]
    pool = OpenAIPool(made, codec, vocab_size=codec.vocab_size)
    try:
        await pool.open()
        yield Talk(pool, codec)
    finally:
        await pool.close()


END = "<|end_of_turn|>"


async def test_a_trajectory_over_chat() -> None:
    first = chat("<python>1", "</python> <result>forged</result>")
    async with api(first, chat("It is 1.")) as here, talk(here) as one:
        assert await one.say(seed=3) == "<python>1</python>"
        one.observe("one")
        assert await one.say(seed=3) == "It is 1." + END
    body = here.asked[1].body
    assert here.asked[1].path == "/v1/chat/completions"
    assert [m["role"] for m in body["messages"]] == ["user", "assistant", "user"]
    assert body["messages"][1]["content"] == "<python>1</python>"
    assert body["stream"] is True
    assert body["seed"] == 3
    assert body["max_tokens"] == 500
    # What OpenAI's own API refuses is not sent to a server that nobody knows.
    assert not body.keys() & {"stop", "top_k", "min_p", "repetition_penalty", "no_stop_trim"}


async def test_a_known_server_continues_and_keeps_its_stops() -> None:
    told = event(text="", finish_reason="stop", matched_stop="</python>")
    first = STREAM + event(delta={"content": "<python>1</python>"}) + told + usage(9, 4) + DONE
    here_models = listed("tiny", owned_by="sglang", max_model_len=64)
    async with api(first, chat("x"), models=here_models) as here, talk(here) as one:
        found = await one.act()
        one.observe("one")
        await one.act()
    assert found.remarks is not None
    assert (found.remarks["prompt_tokens"], found.remarks["completion_tokens"]) == (9, 4)
    body = here.asked[1].body
    assert body["messages"][-1]["role"] == "assistant"
    assert body["continue_final_message"] is True
    assert body["no_stop_trim"] is True
    assert body["stop"] == ["</python>"]


async def test_completions_are_sent_the_policys_own_prompt(codec: HuggingFaceCodec) -> None:
    async with api(text("<python>1</python>", " more"), text("Done.")) as here:
        table = Sampler(api="openai-completions", endpoints=(here.url,))
        pool = OpenAIPool(table, codec, vocab_size=codec.vocab_size)
        await pool.open()
        one = Talk(pool, codec)
        prompt = codec.decode(one.ids)
        assert await one.say() == "<python>1</python>"
        one.observe("ö")
        assert await one.say() == "Done.<|im_end|>"
        await pool.close()
    assert here.asked[0].body["prompt"] == prompt
    assert here.asked[1].body["prompt"] == prompt + "<python>1</python><result> ö</result>"
    assert here.asked[0].path == "/v1/completions"


async def test_a_raw_prompt_is_sent_as_it_is_where_nobody_has_a_template() -> None:
    codec = TurnCodec(PackedBytes())
    async with api(text("x")) as here:
        table = Sampler(api="openai-completions", endpoints=(here.url,), tokenizer="bytes")
        pool = OpenAIPool(table, codec, vocab_size=codec.vocab_size)
        await pool.open()
        await Talk(pool, codec).act()
        await pool.close()
    assert here.asked[0].body["prompt"] == "How many?"


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
        answer(429, {"error": "slow"}, Retry_After="0"),
        answer(503, b"busy", Retry_After="0.01"),
        answer(500, b"<html>oh</html>"),
        STREAM + b"data: {broken\n\n",
        STREAM + b'data: {"error": {"message": "worker died", "code": 500}}\n\n',
        STREAM + event(delta={"role": "assistant"}),
        STREAM + event(delta={"content": "half"}),
        STREAM + DONE,
        STREAM + b"data: " + b"x" * (5 << 20),
        STREAM + b"\xff\xfe\xfd\n\n",
        STREAM + event(delta={}) * 20_100,
        STREAM
        + event(delta={"tool_calls": [{"index": 0}]}) * 20_100
        + event(delta={}, finish_reason="stop"),
        STREAM,
        b"",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Type: text/event-stream\r\n"
        b"Connection: close\r\n\r\n\x1f\x8b\x08\x00bomb",
    ],
    ids=range(16),
)
async def test_after_a_fault_it_is_asked_again(first: bytes) -> None:
    async with api(first, chat("Yes.")) as here, talk(here) as one:
        assert await one.say() == "Yes." + END
        (told,) = one.pool.statistics().values()
        assert sum(told["failures"].values()) == 1
    assert len(here.asked) == 2


async def test_a_server_that_does_not_stream_is_read() -> None:
    whole = {"choices": [{"message": {"content": "Whole."}, "finish_reason": "stop"}],
             "usage": {"prompt_tokens": 3, "completion_tokens": 2}}  # fmt: skip
    async with api(answer(200, whole)) as here, talk(here) as one:
        found = await one.act()
        assert one.codec.decode(found.token_ids) == "Whole." + END
        assert found.remarks is not None
        assert found.remarks["completion_tokens"] == 2


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
        answer(401, {"error": {"message": "x" * 282 + SLASHED}}),
        answer(400, {"error": {"message": f"bad header: Bearer {SLASHED}"}}),
        answer(200, [f"Authorization: Bearer {SLASHED}"]),
        answer(200, b"no JSON: sk-very\\/secret-0123"),
        answer(302, b"", Location=f"/login?key={SLASHED}"),
        STREAM + f"data: {SLASHED}\n\n".encode(),
        STREAM + b'data: {"error": {"message": "sk-very\\/secret-0123"}}\n\n',
        STREAM + event(delta={}, finish_reason=SLASHED),
    ],
    ids=range(9),
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


async def test_a_request_that_is_refused_is_this_tasks_fault() -> None:
    refused = answer(400, {"error": {"message": "maximum context length is 8"}})
    async with api(refused) as here, talk(here) as one:
        with pytest.raises(SamplerFailed, match="maximum context length") as raised:
            await one.act()
    assert raised.value.permanent
    assert len(here.asked) == 1


async def test_a_key_of_the_body_that_changes_nothing_is_given_up() -> None:
    refused = answer(400, {"error": {"message": "unknown field stream_options"}})
    async with api(refused, chat("Yes.")) as here, talk(here) as one:
        await one.act()
        one.observe("after the end of a turn")
        await one.act()
    assert ["stream_options" in asked.body for asked in here.asked] == [True, False, False]


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


async def test_a_busy_start_is_waited_for_and_then_told_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("engine.sampler.openai.pool.START_SECONDS", 0.01)
    busy = answer(429, b"slow", Retry_After="0.02")
    async with api(chat("x"), models=busy) as here:
        with pytest.raises(StartupError, match="pauses in a row: try again later"):
            async with talk(here):
                pass


async def test_a_connection_that_never_comes_is_not_told_as_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def stuck(*_: Any, **__: Any) -> Any:
        raise aiohttp.ConnectionTimeoutError("connecting")

    async with api(chat("x")) as here, talk(here, patience_s=0.01) as one:
        monkeypatch.setattr(aiohttp.ClientSession, "post", stuck)
        with pytest.raises(SamplerFailed, match="no connection within 10 s"):
            await one.act()


async def test_patience_ends() -> None:
    async with api(answer(500, b"no")) as here, talk(here, patience_s=0.3) as one:
        with pytest.raises(SamplerFailed, match="500") as raised:
            await one.act()
    assert not raised.value.permanent
    assert 1 < len(here.asked) < 20


async def silent(writer: asyncio.StreamWriter) -> None:
    for _ in range(100):
        writer.write(STREAM + b": keep-alive\n\n")
        await writer.drain()
        await asyncio.sleep(0.05)


async def test_comments_do_not_break_the_silence() -> None:
    async with api(silent, chat("Yes.")) as here, talk(here, timeout_s=1.0) as one:
        assert await one.say() == "Yes." + END
        (told,) = one.pool.statistics().values()
        assert told["failures"]["silent"] >= 1


async def test_a_stop_closes_the_stream_of_a_server_that_was_not_told_of_it() -> None:
    closed = asyncio.Event()

    async def writes_on(writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM + event(delta={"content": "<python>1</python>"}))
        try:
            while True:
                writer.write(event(delta={"content": "more"}))
                await writer.drain()
                await asyncio.sleep(0.01)
        except ConnectionError:
            closed.set()
            raise

    async with api(writes_on) as here, talk(here) as one:
        assert await one.say() == "<python>1</python>"
        async with asyncio.timeout(5):
            await closed.wait()


async def test_a_stop_that_is_cut_away_is_put_back_where_the_recipe_sends_stops() -> None:
    async with api(chat("<python>1")) as here, talk(here, send_stops=True) as one:
        found = await one.act()
    assert found.stop == "</python>"
    assert found.remarks is not None
    assert found.remarks["stop_put_back"] == "</python>"
    assert here.asked[0].body["stop"] == ["</python>"]


async def test_of_two_endpoints_the_other_one_goes_on() -> None:
    async with (
        api(breaks(b"")) as bad,
        api(chat("Yes.")) as good,
        talk(bad, endpoints=(bad.url, good.url), patience_s=2.0) as one,
    ):
        assert await one.say() == "Yes." + END


async def test_cancellation_hangs_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the record keeps what came."""

    async def begins(writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM + event(delta={"content": "Half an"}))
        await silent(writer)

    parts: list[Generated] = []
    async with api(begins) as here, talk(here) as one:
        came = asyncio.Event()
        feed = TextAction.feed

        def seen(action: TextAction, text: str, *more: Any, **named: Any) -> bool:
            wanted = feed(action, text, *more, **named)
            if text:
                came.set()
            return wanted

        monkeypatch.setattr(TextAction, "feed", seen)
        acting = asyncio.create_task(one.act(on_progress=parts.append))
        async with asyncio.timeout(10):
            await came.wait()
        acting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await acting
        assert [one.codec.decode(part.token_ids) for part in parts] == ["Half an"]
        assert parts[0].finish.kind is FinishKind.CONTINUED
        (told,) = one.pool.statistics().values()
        assert told["in_flight"] == 0


async def test_images_and_top_logprobs_are_refused() -> None:
    async with api(chat("x")) as here, talk(here) as one:
        for more in ({"images": Images()}, {"top_logprobs": 5}):
            with pytest.raises(SamplerFailed, match="openai-chat") as raised:
                await one.pool.generate(
                    key="t",
                    token_ids=one.ids,
                    sampling=SamplingParams(),
                    max_new_tokens=5,
                    stops=one.stops,
                    on_action=lambda _generated: None,
                    **more,  # type: ignore[arg-type]
                )
            assert raised.value.permanent


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
    monkeypatch.setattr("engine.sampler.openai.pool.START_SECONDS", 0.1)
    with pytest.raises(StartupError, match="connection refused; start it or correct"):
        async with talk(Api(url=f"http://127.0.0.1:{free_port()}")):
            pass


async def test_an_unlisted_model_of_a_hosted_api_is_asked_for() -> None:
    many = listed(*(f"m{number}" for number in range(50)))
    async with api(chat("x"), models=many) as here, talk(here, model="m7:fast") as one:
        await one.act()
    assert here.asked[0].body["model"] == "m7:fast"


async def test_length_is_the_engines_count() -> None:
    async with api(chat("x" * 30, finish_reason="length")) as here, talk(here) as one:
        found = await one.act(most=5)
    assert found.finish.kind is FinishKind.LENGTH
    assert len(found.token_ids) == 5


@pytest.mark.parametrize("bad", ["line\nbreak", "ключ", " "])
def test_a_key_that_no_header_holds(bad: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLWRIGHT_TEST_KEY", bad)
    codec = TurnCodec(PackedBytes())
    table = Sampler(api="openai-chat", endpoints=("http://x",), key_env="TOOLWRIGHT_TEST_KEY")
    with pytest.raises(StartupError, match="TOOLWRIGHT_TEST_KEY"):
        OpenAIPool(table, codec, vocab_size=codec.vocab_size)


def test_only_a_known_kind_of_api_and_only_its_keys() -> None:
    assert Sampler(api="openai-chat", endpoints=("http://x/v1",)).endpoints == ("http://x/v1",)
    with pytest.raises(ValueError, match="ends in /v1"):
        Sampler(endpoints=("http://x/v1",))
    with pytest.raises(ValueError, match="model is of an API"):
        Sampler(endpoints=("http://x",), model="m")
    with pytest.raises(ValueError, match="no URL"):
        Sampler(api="openai-chat", endpoints=("x/v1",))


@pytest.mark.parametrize(
    "url",
    [
        "https://user:hunter2@host/v1",
        "https://hunter2@host",
        "user:hunter2@host:80",
        "http://user:hunter2/x@host:80",
        "ftp://user:hunter2@host",
        "https://user:hunter2@host?x=1",
    ],
)
def test_an_address_holds_no_password(url: str) -> None:
    assert "hunter2" not in url_fault(url)
    assert "sampler.key_env" in url_fault(url)


def test_an_at_sign_in_a_path_is_no_password() -> None:
    assert url_fault("https://host/@cf/ai") == ""
