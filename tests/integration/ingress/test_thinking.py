"""A template that strips thoughts, and a client that drops them: 32 turns, both ways."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from openai import AsyncOpenAI

from ingress.text.tails import PromptIds, Tails
from tests.support.agents import END, TOOLS, Served, call_text, served_agents
from tests.support.families import write_family
from tests.support.net import free_port
from toolwright.wire import unpack

pytestmark = pytest.mark.slow

TURNS = 32
TEXTS = [
    f"<think>\nthought {number}\n</think>\n\n"
    + (call_text("here") if number % 2 else f"Answer {number}.")
    + END
    for number in range(TURNS)
]


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_family(tmp_path_factory.mktemp("qwen3") / "p", "qwen3")


async def play(served: Served, texts: Sequence[str], *, reasoning: bool = False) -> None:
    """A conversation with tools. reasoning: the client sends the thoughts back."""
    messages: list[Any] = [{"role": "user", "content": "q"}]
    async with AsyncOpenAI(base_url=served.url, api_key="unused", max_retries=0) as client:
        for number, _ in enumerate(texts):
            found = await client.chat.completions.create(
                model="policy", messages=messages, tools=TOOLS
            )  # type: ignore[call-overload]
            message = found.choices[0].message
            assert message.reasoning_content == f"thought {number}"
            said = message.model_dump(exclude_none=True)
            if not reasoning:
                del said["reasoning_content"]
            messages.append(said)
            if message.tool_calls:
                call = message.tool_calls[0].id
                messages.append({"role": "tool", "tool_call_id": call, "content": "a cat"})
            else:
                messages.append({"role": "user", "content": f"Turn {number}."})


@pytest.mark.parametrize("reasoning", [False, True])
async def test_kept_thoughts_make_one_sequence_with_one_whole_rendering(
    qwen: Path, reasoning: bool
) -> None:
    async with served_agents(qwen, TEXTS, verify=0) as served:
        await play(served, TEXTS, reasoning=reasoning)
    prompts = [call.prompt for call in served.engine.calls]
    assert [prompt.HasField("tail") for prompt in prompts] == [False] + [True] * (TURNS - 1)
    for number, node in enumerate(served.engine.nodes):
        assert node.parent == (number - 1 if number else None)
    last = served.engine.nodes[-1]
    said = served.tokenizer.decode(last.prompt + last.completion)
    assert all(f"thought {number}" in said for number in range(TURNS))


async def test_the_template_s_own_form_is_rendered_as_a_whole(qwen: Path) -> None:
    texts = TEXTS[:6]
    async with served_agents(qwen, texts, thinking="template") as served:
        await play(served, texts, reasoning=True)
    for call in served.engine.calls:
        assert call.prompt.HasField("fresh")
    shown = served.tokenizer.decode(unpack(served.engine.calls[-1].prompt.fresh.token_ids, "i"))
    assert "Answer 4." in shown
    assert "thought 0" not in shown


async def test_a_second_rendering_is_counted(qwen: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stripped thought changes the history alone. Another tail is a fault."""
    port, texts = free_port(), ["Plain." + END, *TEXTS[1:4]]
    own = Tails.tail

    def faulty(*given: Any, **more: Any) -> PromptIds | None:
        found = own(*given, **more)
        assert found is not None
        ((author, count),) = found.authors
        return replace(found, token_ids=[*found.token_ids, 1], authors=((author, count + 1),))

    messages: list[Any] = [{"role": "user", "content": "q"}]
    async with served_agents(qwen, texts, verify=1, metrics_port=port) as served:
        async with AsyncOpenAI(base_url=served.url, api_key="unused", max_retries=0) as client:
            for number, _ in enumerate(texts):
                if number == 3:
                    monkeypatch.setattr(Tails, "tail", faulty)
                found = await client.chat.completions.create(model="policy", messages=messages)
                messages.append({"role": "assistant", "content": found.choices[0].message.content})
                messages.append({"role": "user", "content": "more"})
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{port}/metrics") as page,
        ):
            lines = (await page.text()).splitlines()
    counts = [line for line in lines if line.startswith("toolwright_ingress_verified_total{")]
    assert counts == [
        f'toolwright_ingress_verified_total{{found="{found}"}} 1.0'
        for found in ("same", "history", "tail")
    ]
    asked = 'toolwright_ingress_requests_total{route="chat/completions",status="200"} 4.0'
    assert asked in lines
