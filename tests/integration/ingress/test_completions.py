"""Legacy completions by OpenAI's own client: text and token ids."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.support.agents import END, Served, served_agents
from toolwright.wire import unpack

pytestmark = pytest.mark.quick

TEXTS = [f"<tool_call> number {number}.{END}" for number in range(4)]


@pytest.fixture
async def served(policy_folder: Path) -> AsyncIterator[Served]:
    async with served_agents(policy_folder, TEXTS) as found:
        yield found


def client(served: Served) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=served.url, api_key="unused", max_retries=0)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_sends_ids_goes_on_from_its_calls(served: Served, stream: bool) -> None:
    tokenizer = served.tokenizer
    prompt = tokenizer.encode("<|im_start|>user\nq")
    async with client(served) as agent:
        for number, text in enumerate(TEXTS):
            found: Any = await agent.completions.create(
                model="policy", prompt=prompt, logprobs=1, stream=stream,
                extra_body={"return_token_ids": True},
            )  # fmt: skip
            choices = [one.choices[0] async for one in found] if stream else [found.choices[0]]
            assert "".join(one.text for one in choices) == text.removesuffix(END)
            last = choices[-1]
            assert (last.finish_reason, last.token_ids) == ("stop", tokenizer.encode(text))
            assert last.logprobs.token_logprobs == [-0.5] * len(last.token_ids)
            node = served.engine.nodes[number]
            assert list(node.prompt) == prompt
            assert node.parent == (number - 1 if number else None)
            prompt += [*last.token_ids, *tokenizer.encode(" more")]


async def test_a_text_is_sent_without_a_template(served: Served) -> None:
    async with client(served) as agent:
        found = await agent.completions.create(
            model="policy", prompt=f"one{END}", n=2, stop=["x"], max_tokens=2, temperature=0.5
        )
    (call,) = served.engine.calls
    assert [one.finish_reason for one in found.choices] == ["length"] * 2
    ids = unpack(call.prompt.fresh.token_ids, "i").tolist()
    assert ids == served.tokenizer.encode(f"one{END}")
    assert (list(call.ask.stops), call.ask.sampling.temperature) == (["x"], 0.5)


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"prompt": ""}, "prompt"),
        ({"prompt": ["one", "two"]}, "prompt"),
        ({"prompt": [1, -1]}, "prompt"),
        ({"prompt": [1, True]}, "prompt"),
        ({"prompt": [2**31 - 1]}, "prompt"),
        ({"echo": True}, "echo"),
        ({"suffix": "x"}, "suffix"),
        ({"best_of": 2}, "best_of"),
        ({"logprobs": 5}, "logprobs"),
    ],
)
async def test_a_wrong_key_is_named(served: Served, change: dict[str, Any], param: str) -> None:
    async with client(served) as agent:
        with pytest.raises(openai.BadRequestError) as refused:
            await agent.post(
                "/completions", body={"model": "policy", "prompt": "q", **change}, cast_to=object
            )
    assert refused.value.param == param
