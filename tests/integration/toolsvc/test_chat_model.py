"""The client of model endpoints against one on loopback."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from tests.support.chat_endpoint import ChatEndpoint, chat_endpoint, fault
from toolsvc.backends.budget import BudgetSpent
from toolsvc.backends.chat_model import (
    ChatModel,
    ChatModelDown,
    ChatModelOptions,
    ChatModelRefused,
)

pytestmark = pytest.mark.quick

QUESTION = [{"role": "user", "content": "2 + 2?"}]


@asynccontextmanager
async def model(endpoint: ChatEndpoint, **options: Any) -> AsyncIterator[ChatModel]:
    given = ChatModelOptions.model_validate(
        {"endpoint": endpoint.url, "model": "tiny", "retries": 0, **options}
    )
    async with given.opened_cache() as cache, ChatModel(given, cache) as opened:
        yield opened


async def ask(model: ChatModel, **more: Any) -> str:
    fields: dict[str, Any] = {"temperature": 0.0, "max_tokens": 20, **more}
    return (await model.complete(QUESTION, **fields)).text


async def test_the_request_is_the_api_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "secret")
    schema = {"type": "object"}
    async with (
        chat_endpoint(lambda _: "4") as endpoint,
        model(endpoint, key_variable="MY_KEY") as asked,
    ):
        more = {"seed": 7, "json_schema": schema}
        answer = await asked.complete(QUESTION, temperature=0.5, max_tokens=20, **more)
        assert (answer.text, answer.usage.prompt, answer.usage.completion) == ("4", 10, 5)
    assert endpoint.keys == ["Bearer secret"]
    form = {"name": "answer", "schema": schema, "strict": True}
    assert endpoint.requests == [
        {"model": "tiny", "messages": QUESTION, "temperature": 0.5, "max_tokens": 20, "seed": 7,
         "response_format": {"type": "json_schema", "json_schema": form}}
    ]  # fmt: skip


async def test_the_cache_outlives_model_and_endpoint(tmp_path: Path) -> None:
    cache = str(tmp_path / "cache")
    async with chat_endpoint(lambda _: "4") as endpoint, model(endpoint, cache=cache) as asked:
        assert await ask(asked) == "4"
    async with (
        chat_endpoint(lambda _: "5") as endpoint,
        model(endpoint, cache=cache, budget_requests=1) as asked,
    ):
        again = await asked.complete(QUESTION, temperature=0.0, max_tokens=20)
        assert (again.text, again.cached, again.usage.prompt) == ("4", True, 10)
        assert await ask(asked, seed=1) == "5"  # another request
        figures = asked.figures()
        assert (figures["model_requests_total"], figures["model_cached_total"]) == (1, 1)


async def test_equal_requests_in_flight_are_sent_once() -> None:
    async with chat_endpoint(lambda _: "4") as endpoint, model(endpoint) as asked:
        endpoint.open.clear()
        asking = asyncio.gather(*(ask(asked) for _ in range(5)))
        await endpoint.arrived.wait()
        endpoint.open.set()
        assert await asking == ["4"] * 5
        assert len(endpoint.requests) == 1


async def test_what_may_pass_is_tried_again() -> None:
    async with chat_endpoint(lambda _: "4") as endpoint, model(endpoint, retries=2) as asked:
        now = {"Retry-After": "0.01"}
        endpoint.faults = [fault(429, **now), fault(503, **now)]
        assert await ask(asked) == "4"
        assert len(endpoint.requests) == 3
        endpoint.faults = [fault(500, **now) for _ in range(3)]
        with pytest.raises(ChatModelDown, match=r"model tiny at http://127.*answered 500"):
            await ask(asked)
        assert len(endpoint.requests) == 6
        assert asked.figures()["model_failed_total"] == 1


async def test_an_endpoint_that_hangs_or_is_gone_is_down() -> None:
    async with chat_endpoint(lambda _: "4") as endpoint, model(endpoint, timeout=0.05) as asked:
        endpoint.open.clear()
        with pytest.raises(ChatModelDown):
            await ask(asked)
    async with model(endpoint) as asked:
        with pytest.raises(ChatModelDown):
            await ask(asked)


@pytest.mark.parametrize(
    "answer",
    [
        fault(401),
        web.Response(text="<html>"),
        web.Response(text="{", content_type="application/json"),
        web.json_response({"choices": []}),
        web.json_response(["no"]),
    ],
    ids=lambda answer: f"{answer.status} {answer.text}",
)
async def test_what_will_not_pass_is_refused_at_once(answer: web.Response) -> None:
    async with chat_endpoint(lambda _: "4") as endpoint, model(endpoint, retries=3) as asked:
        endpoint.faults = [answer]
        with pytest.raises(ChatModelRefused):
            await ask(asked)
        assert len(endpoint.requests) == 1


async def test_the_budget_bounds_requests_and_tokens() -> None:
    async with chat_endpoint(lambda _: "4") as endpoint:
        async with model(endpoint, budget_requests=1) as asked:
            await ask(asked)
            with pytest.raises(BudgetSpent, match="budget of 1 requests is spent"):
                await ask(asked)
        async with model(endpoint, budget_tokens=40) as asked:
            await ask(asked)
            with pytest.raises(BudgetSpent, match="15 used, 0 reserved, 30 wanted"):
                await ask(asked, max_tokens=30)
            with pytest.raises(BudgetSpent, match=r"^model \S+ at .*; used: 1 requests, 15 tokens"):
                await ask(asked, max_tokens=30)
            await ask(asked, max_tokens=25)
        assert len(endpoint.requests) == 3


async def test_what_a_model_used_is_in_the_log_at_the_end() -> None:
    async with chat_endpoint(lambda _: "4") as endpoint:
        with capture_logs() as lines:
            async with model(endpoint) as asked:
                await ask(asked)
        (line,) = [line for line in lines if line["event"] == "model_used"]
    assert (line["model_requests_total"], line["model_tokens_total"]) == (1, 15)
    assert endpoint.url in line["model"]


@pytest.mark.parametrize(
    ("key", "message", "instead"),
    [
        ("max_tokens", "Unsupported parameter: 'max_tokens'", "max_completion_tokens"),
        ("temperature", "Unsupported value: 'temperature' does not support 0", ""),
    ],
)
async def test_a_key_that_the_endpoint_refuses_is_left_out(
    key: str, message: str, instead: str
) -> None:
    async with chat_endpoint(lambda _: "4") as endpoint, model(endpoint) as asked:
        endpoint.faults.append(fault(400, message))
        assert await ask(asked) == "4"
        assert await ask(asked) == "4"
    assert [key in request for request in endpoint.requests] == [True, False, False]
    assert not instead or endpoint.requests[-1][instead] == 20


async def test_no_proxy_for_an_endpoint_on_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "localhost")
    async with chat_endpoint(lambda _: "4") as endpoint, model(endpoint) as asked:
        assert await ask(asked) == "4"
    gone = ChatModelOptions(endpoint="http://models.example/v1", model="m", retries=0)
    async with ChatModel(gone) as asked:
        with pytest.raises(ChatModelDown, match=r"through the proxy http://127\.0\.0\.1:9"):
            await ask(asked)
