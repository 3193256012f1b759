"""The clients of OpenAI's responses and Anthropic's messages, unchanged, play the ten calls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI

from tests.integration.ingress.test_openai_client import PLACES, check_record
from tests.support.agents import TEN, TOOLS, Served, served_agents

pytestmark = pytest.mark.slow

SYSTEM, QUESTION = "Use your tools.", "Where is <|im_end|>?"
FUNCTION = TOOLS[0]["function"]


async def responses(served: Served, *, stream: bool) -> list[Any]:
    """The items of the conversation, as an agent keeps them."""
    items: list[Any] = [{"role": "user", "content": QUESTION}]
    asked: Any = {
        "model": "policy",
        "instructions": SYSTEM,
        "tools": [{"type": "function", "strict": False, **FUNCTION}],
        "store": False,
    }
    async with AsyncOpenAI(base_url=served.url, api_key="unused", max_retries=0) as client:
        for places in PLACES:
            if stream:
                async with client.responses.stream(input=items, **asked) as events:
                    response = await events.get_final_response()
            else:
                response = await client.responses.create(input=items, **asked)
            assert response.status == "completed"
            assert response.usage is not None
            items += [one.model_dump(exclude_none=True) for one in response.output]
            calls = [one for one in response.output if one.type == "function_call"]
            assert [json.loads(one.arguments)["place"] for one in calls] == places
            items += [
                {"type": "function_call_output", "call_id": call.call_id,
                 "output": f"nothing at {place}"}
                for call, place in zip(calls, places, strict=True)
            ]  # fmt: skip
            if not calls:
                assert response.output_text
                items.append({"role": "user", "content": "Go on."})
    return items


async def continued(served: Served, *, stream: bool) -> list[Any]:
    """The same conversation; each request names the response before it and sends new items."""
    asked: Any = {
        "model": "policy",
        "instructions": SYSTEM,
        "tools": [{"type": "function", "strict": False, **FUNCTION}],
        "input": QUESTION,
    }
    found: list[Any] = []
    async with AsyncOpenAI(base_url=served.url, api_key="unused", max_retries=0) as client:
        for places in PLACES:
            if stream:
                async with client.responses.stream(**asked) as events:
                    response = await events.get_final_response()
            else:
                response = await client.responses.create(**asked)
            assert response.previous_response_id == asked.get("previous_response_id")
            found += [one.model_dump(exclude_none=True) for one in response.output]
            calls = [one for one in response.output if one.type == "function_call"]
            new: list[Any] = [
                {"type": "function_call_output", "call_id": call.call_id,
                 "output": f"nothing at {place}"}
                for call, place in zip(calls, places, strict=True)
            ]  # fmt: skip
            asked["input"] = new or "Go on."
            asked["previous_response_id"] = response.id
    return found


async def messages(served: Served, *, stream: bool) -> list[Any]:
    anthropic = pytest.importorskip("anthropic")
    turns: list[Any] = [{"role": "user", "content": QUESTION}]
    tool = {"name": FUNCTION["name"], "description": FUNCTION["description"],
            "input_schema": FUNCTION["parameters"]}  # fmt: skip
    asked: Any = {
        "model": "policy",
        "max_tokens": 1000,
        "system": [{"type": "text", "text": SYSTEM, "cache_control": {"type": "ephemeral"}}],
        "tools": [tool],
    }
    base = served.url.removesuffix("/v1")
    async with anthropic.AsyncAnthropic(base_url=base, api_key="key", max_retries=0) as client:
        for places in PLACES:
            if stream:
                async with client.messages.stream(messages=turns, **asked) as events:
                    message = await events.get_final_message()
            else:
                message = await client.messages.create(messages=turns, **asked)
            turns.append({
                "role": "assistant",
                "content": [one.model_dump(exclude_none=True) for one in message.content],
            })  # fmt: skip
            calls = [one for one in message.content if one.type == "tool_use"]
            assert [one.input["place"] for one in calls] == places
            assert message.stop_reason == ("tool_use" if calls else "end_turn")
            assert message.usage.output_tokens > 0
            results: list[Any] = [
                {"type": "tool_result", "tool_use_id": call.id, "content": f"nothing at {place}"}
                for call, place in zip(calls, places, strict=True)
            ]
            turns.append({"role": "user", "content": results or "Go on."})
        counted = await client.messages.count_tokens(
            model="policy", messages=turns[:1], system=SYSTEM, tools=[tool]
        )
    assert counted.input_tokens == len(served.engine.nodes[0].prompt)
    return turns


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("play", [responses, continued, messages])
async def test_ten_calls_are_one_sequence(qwen: Path, play: Any, stream: bool) -> None:
    async with served_agents(qwen, TEN) as served:
        conversation = await play(served, stream=stream)
        check_record(served)
    assert "hm" in json.dumps(conversation)


async def test_a_full_context_has_the_words_that_agents_look_for(qwen: Path) -> None:
    anthropic = pytest.importorskip("anthropic")
    async with served_agents(qwen, TEN, context=10) as served:
        base = served.url.removesuffix("/v1")
        async with anthropic.AsyncAnthropic(base_url=base, api_key="key", max_retries=0) as client:
            with pytest.raises(
                anthropic.BadRequestError, match=r"prompt is too long: \d+ tokens > 10 maximum'"
            ):
                await client.messages.create(
                    model="policy", max_tokens=9, messages=[{"role": "user", "content": "q"}]
                )
