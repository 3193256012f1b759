"""OpenAI's own client, unchanged, plays a conversation of ten calls with tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionMessage

from tests.support.agents import TEN, TOOLS, Served, served_agents
from toolwright.types import ids
from toolwright.wire import unpack

pytestmark = pytest.mark.slow

PLACES = [["here"], ["\u00e4 'quoted' \\ place", "two"], ["</tool_call>"], ["four"], [], ["six"]]
PLACES += [[], ["eight"], ["nine"], []]


async def whole(client: AsyncOpenAI, messages: list[Any]) -> ChatCompletionMessage:
    found = await client.chat.completions.create(
        model="policy", messages=messages, tools=TOOLS, temperature=0.3
    )  # type: ignore[call-overload]
    message: ChatCompletionMessage = found.choices[0].message
    assert found.choices[0].finish_reason == ("tool_calls" if message.tool_calls else "stop")
    return message


async def streamed(client: AsyncOpenAI, messages: list[Any]) -> ChatCompletionMessage:
    async with client.chat.completions.stream(
        model="policy", messages=messages, tools=TOOLS, stream_options={"include_usage": True}
    ) as stream:  # fmt: skip
        found = await stream.get_final_completion()
    assert found.usage is not None
    assert found.usage.completion_tokens > 0
    return found.choices[0].message


async def play(client: AsyncOpenAI, turn: Any) -> list[Any]:
    """The messages of the conversation; the agent sends back what it got."""
    messages: list[Any] = [
        {"role": "system", "content": "Use your tools."},
        {"role": "user", "content": "Where is <|im_end|>?"},
    ]
    for places in PLACES:
        message = await turn(client, messages)
        messages.append(message.model_dump(exclude_none=True))
        calls = message.tool_calls or []
        found = [call.function.parsed_arguments if hasattr(call.function, "parsed_arguments")
                 else None for call in calls]  # fmt: skip
        assert len(found) == len(places)
        messages += [
            {"role": "tool", "tool_call_id": call.id, "content": f"nothing at {place}"}
            for call, place in zip(calls, places, strict=True)
        ]
        if not calls:
            messages.append({"role": "user", "content": "Go on."})
    return messages


def check_record(served: Served) -> None:
    """Every call goes on from the one before with a tail, and the ids only ever grow."""
    engine, tokenizer = served.engine, served.tokenizer
    assert len(engine.nodes) == len(TEN)
    for number, node in enumerate(engine.nodes):
        assert tokenizer.decode(node.completion) == TEN[number]
        prompt = engine.calls[number].prompt
        assert prompt.HasField("tail" if number else "fresh")
        assert node.parent == (number - 1 if number else None)
        if number:
            before = engine.nodes[number - 1]
            assert node.prompt[: len(before.prompt)] == before.prompt
    results = [one.text for call in engine.calls for one in call.prompt.results]
    assert results == [f"nothing at {place}" for places in PLACES[:-1] for place in places]
    last = ids(engine.nodes[-1].prompt)
    assert "Where is <|im_end|>?" in tokenizer.decode(last)


@pytest.mark.parametrize("turn", [whole, streamed])
async def test_ten_calls_are_one_sequence(qwen: Path, turn: Any) -> None:
    async with served_agents(qwen, TEN) as served:
        async with AsyncOpenAI(base_url=served.url, api_key="unused", max_retries=0) as client:
            messages = await play(client, turn)
        check_record(served)
        said = [one for one in messages if one["role"] == "assistant"]
        assert said[0]["content"] == "I look."
        assert said[2]["content"] == "Still looking."
        assert said[2]["reasoning_content"] == "hm"
        assert said[6]["content"].startswith("<tool_call>")
        noted = served.engine.calls[6].reply
        assert noted is not None
        assert "argumens" in noted.completions[0].calls[0].invalid_reason
        asks = [call.ask for call in served.engine.calls]
        assert len({ask.agent for ask in asks}) == 1
        assert unpack(served.engine.nodes[0].finished.logprobs, "f")[0] == -0.5
