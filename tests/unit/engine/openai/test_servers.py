"""The pool against servers that are OpenAI-compatible in their own way."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from structlog.testing import capture_logs

from engine.core.sampler.openai.refusals import EndpointUnusable
from engine.errors import SamplerFailed
from tests.support.openai_api import DONE, STREAM, Play, answer, api, chat, event, listed
from tests.support.openai_talk import END, talk

pytestmark = pytest.mark.quick
PLAIN = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
AS_JSON = PLAIN.replace(b"text/plain", b"application/json")
WHOLE = {"choices": [{"message": {"content": "Yes."}, "finish_reason": "stop"}]}


def error(message: str, **more: Any) -> bytes:
    return answer(400, {"error": {"message": message, **more}})


def extra(*keys: str) -> bytes:
    """The refusal of FastAPI with pydantic models that forbid extra fields."""
    said = {"type": "extra_forbidden", "msg": "Extra inputs are not permitted", "input": 0.5}
    faults = [{**said, "loc": ["body", key]} for key in keys]
    return answer(422, {"detail": faults})


def sse(*payloads: object) -> bytes:
    return b"".join(b"data: " + json.dumps(one).encode() + b"\n\n" for one in payloads)


@pytest.mark.parametrize(
    "stream",
    [
        STREAM + sse({"choices": [{"delta": {"content": "Yes."}}]}) + DONE,
        STREAM + event(delta={"content": "Yes."}, finish_reason="a word of next year") + DONE,
        STREAM + event(delta={"content": "Yes."}, finish_reason="end_turn"),
        PLAIN + b"\xef\xbb\xbf\n" + json.dumps(WHOLE).encode(),
        AS_JSON + event(delta={"content": "Yes."}, finish_reason="stop") + DONE,
        answer(200, {"choices": [{"message": {"content": "Yes."}}]}),
    ],
    ids=range(6),
)
async def test_a_whole_answer_is_taken_at_once(stream: bytes) -> None:
    async with api(stream) as here, talk(here) as one:
        assert await one.say() == "Yes." + END
    assert len(here.asked) == 1, "a second request is billed again"


@pytest.mark.parametrize(
    ("refusals", "left"),
    [
        ([error("`temperature` and `top_p` cannot both be specified")], {"temperature"}),
        ([error("'top_p' is not supported"), error("'temperature' is not supported")], set()),
        ([extra("temperature", "top_p"), extra("temperature")], set()),
    ],
)
async def test_a_key_that_a_server_refuses_is_left_out(
    refusals: list[bytes], left: set[str]
) -> None:
    async with api(*refusals, chat("Yes.")) as here, talk(here) as one:
        found = await one.act(temperature=0.5, top_p=0.9)
        one.observe("after the end of a turn")
        await one.act(temperature=0.5, top_p=0.9)
    assert len(here.asked) == len(refusals) + 2
    for asked in here.asked[-2:]:
        assert {"temperature", "top_p"} & set(asked.body) == left
    assert found.remarks["left_out"] == sorted({"temperature", "top_p"} - left)


async def test_a_refused_key_is_one_warning_however_many_requests_have_it() -> None:
    both = asyncio.Event()

    async def refuses(writer: asyncio.StreamWriter) -> None:
        """When a second request is on its way."""
        if len(here.asked) == 2:
            both.set()
        await asyncio.wait_for(both.wait(), 5)
        writer.write(extra("temperature"))

    async with api(refuses, refuses, chat("Yes.")) as here, talk(here) as one:
        with capture_logs() as logs:
            await asyncio.gather(one.act(temperature=0.5), one.act(temperature=0.5))
    assert len(here.asked) == 4
    (warning,) = [log for log in logs if log["event"] == "server_refuses_a_key"]
    assert warning["key"] == "temperature"
    assert warning["fix"] == "requests go out without it, so the server's own value applies"


async def test_a_server_without_chat_templates_is_about_the_recipe_s_key() -> None:
    """Its own sentence names a key that no recipe has."""
    refusal = error("unrecognized: chat_template_kwargs")
    async with api(refusal) as here, talk(here, template={"thinking": False}) as one:
        with pytest.raises(SamplerFailed, match=r"leave policy\.template out"):
            await one.act()


@pytest.mark.parametrize(
    ("owned_by", "sent"), [("someone", set()), ("vllm", {"temperature", "top_p"})]
)
async def test_defaults_are_sent_where_the_model_may_have_others(
    owned_by: str, sent: set[str]
) -> None:
    models = listed("tiny", owned_by=owned_by)
    async with api(chat("Yes."), models=models) as here, talk(here) as one:
        await one.act(temperature=1.0)
    assert {"temperature", "top_p"} & set(here.asked[0].body) == sent


@pytest.mark.parametrize(
    ("given", "paths"),
    [
        ("/serving", ["/serving/v1/chat/completions", "/serving/chat/completions"]),
        ("/inference/chat/completions", ["/inference/chat/completions"]),
    ],
)
async def test_an_address_without_a_version(given: str, paths: list[str]) -> None:
    missing = answer(404, {"error": {"message": "no such path"}})
    plays: list[bytes | Play] = [*[missing] * (len(paths) - 1), chat("Yes.")]
    async with api(*plays) as here, talk(here, endpoints=(here.url + given,)) as one:
        assert await one.say() == "Yes." + END
        one.observe("after the end of a turn")
        await one.act()
    assert [asked.path for asked in here.asked] == [*paths, paths[-1]]


@pytest.mark.parametrize("variable", ["http_proxy", "HTTP_PROXY", "all_proxy"])
async def test_no_proxy_for_loopback(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "localhost")
    async with api(chat("Yes.")) as here, talk(here) as one:
        assert await one.say() == "Yes." + END


async def test_a_proxy_that_is_gone_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://me:secret@127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setattr("engine.core.sampler.openai.pool.START_SECONDS", 0.0)
    async with api(chat("Yes.")) as here:
        with pytest.raises(Exception, match=r"through the proxy http://127\.0\.0\.1:9") as raised:
            async with talk(here, endpoints=("http://models.example/v1",)):
                pass
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    "guessed",
    [answer(401, {"error": "who are you"}), answer(200, b"<html>", Content_Type="text/html")],
)
async def test_what_answers_at_a_guessed_address_hides_no_sentence(guessed: bytes) -> None:
    missing = answer(404, {"error": {"message": "no model of that name"}})
    async with api(missing, guessed) as here, talk(here) as one:
        with pytest.raises(EndpointUnusable, match="no model of that name"):
            await one.act()
    assert len(here.asked) == 2
