"""Requests that name an earlier response, by OpenAI's own client, through two HTTP workers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from ingress.config import IngressTable
from ingress.serving import served as served_ingress
from tests.support.agents import END, Served, served_agents
from toolwright.chat.tokenizer import ChatTokenizer

pytestmark = pytest.mark.quick

SAID = [f"one{END}", f"two{END}", f"three{END}", f"four{END}"]


@pytest.fixture
async def served(policy_folder: Path) -> AsyncIterator[Served]:
    async with served_agents(policy_folder, SAID) as found:
        yield found


@pytest.fixture
async def clients(served: Served, policy_folder: Path) -> AsyncIterator[list[AsyncOpenAI]]:
    """A client of each of two workers, which share nothing but the engine."""
    async with AsyncExitStack() as stack:
        other = await stack.enter_async_context(
            served_ingress(
                partial(ChatTokenizer, policy_folder),
                IngressTable(address="127.0.0.1:0"),
                engine=served.engine.address,
            )
        )
        urls = [served.url, f"http://127.0.0.1:{other.port}/t/key/v1"]
        yield [
            await stack.enter_async_context(AsyncOpenAI(base_url=url, api_key="x", max_retries=0))
            for url in urls
        ]


def shown(served: Served) -> list[str]:
    """The prompt of each call."""
    return [served.tokenizer.decode(node.prompt) for node in served.engine.nodes]


async def test_any_worker_goes_on_from_a_response(
    served: Served, clients: list[AsyncOpenAI]
) -> None:
    asked: dict[str, Any] = {"model": "policy", "input": "q"}
    for number in range(4):
        response = await clients[number % 2].responses.create(**asked)
        asked = {"model": "policy", "input": "next", "previous_response_id": response.id}
    assert [node.parent for node in served.engine.nodes] == [None, 0, 1, 2]
    assert [call.prompt.HasField("tail") for call in served.engine.calls] == [False] + [True] * 3
    assert shown(served)[3].count("next") == 3


async def test_instructions_are_each_request_s_own(
    served: Served, clients: list[AsyncOpenAI]
) -> None:
    first, second = clients
    one = await first.responses.create(model="policy", input="q", instructions="be brief")
    two = await second.responses.create(
        model="policy", input="next", instructions="be long", previous_response_id=one.id
    )
    await first.responses.create(model="policy", input="last", previous_response_id=two.id)
    prompts = shown(served)
    assert ["be brief" in one for one in prompts] == [True, False, False]
    assert ["be long" in one for one in prompts] == [False, True, False]
    assert [word in prompts[2] for word in ("q", "one", "next", "two", "last")] == [True] * 5


async def test_an_earlier_response_is_continued_twice(
    served: Served, clients: list[AsyncOpenAI]
) -> None:
    first, second = clients
    one = await first.responses.create(model="policy", input="q")
    for client, said in ((first, "left"), (second, "right")):
        await client.responses.create(model="policy", input=said, previous_response_id=one.id)
    assert [node.parent for node in served.engine.nodes] == [None, 0, 0]
    assert "left" not in shown(served)[2]


async def test_a_whole_history_is_continued_by_its_last_response(
    served: Served, clients: list[AsyncOpenAI]
) -> None:
    first, second = clients
    items: list[Any] = [{"role": "user", "content": "q"}]
    one = await first.responses.create(model="policy", input=items, store=False)
    items += [{"role": "assistant", "content": one.output_text}, {"role": "user", "content": "w"}]
    two = await first.responses.create(model="policy", input=items)
    await second.responses.create(model="policy", input="x", previous_response_id=two.id)
    assert [node.parent for node in served.engine.nodes] == [None, 0, 1]
    assert not served.engine.calls[0].prompt.HasField("messages")
    with pytest.raises(openai.BadRequestError, match=f"'{one.id}' not found") as refused:
        await second.responses.create(model="policy", input="x", previous_response_id=one.id)
    assert (refused.value.code, refused.value.param) == (
        "previous_response_not_found",
        "previous_response_id",
    )


@pytest.mark.parametrize(
    "name", ["resp_1", "x", f"resp_{'0' * 24}-0", f"resp_{'0' * 24}-999999999"]
)
@pytest.mark.parametrize("stream", [False, True])
async def test_an_unknown_response_is_refused_in_openai_s_shape(
    clients: list[AsyncOpenAI], name: str, stream: bool
) -> None:
    await clients[0].responses.create(model="policy", input="q")
    with pytest.raises(openai.BadRequestError, match="not found") as refused:
        await clients[1].responses.create(
            model="policy", input="q", previous_response_id=name, stream=stream
        )
    assert refused.value.code == "previous_response_not_found"


async def test_a_text_that_is_too_long_is_not_kept(
    served: Served, clients: list[AsyncOpenAI], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ingress.model_call.MOST_TEXT", 100)
    one = await clients[0].responses.create(model="policy", input="q" * 100)
    with pytest.raises(openai.BadRequestError, match="not found"):
        await clients[1].responses.create(model="policy", input="x", previous_response_id=one.id)
