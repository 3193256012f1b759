"""OpenAI's own client, the ingress and the engine: a conversation becomes one exact sequence."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from bench.scripted import Timing
from engine.core.text.codec import HuggingFaceCodec
from ingress.config import IngressTable
from ingress.serving import served as served_ingress
from tests.integration.engine.conftest import MakeWorld
from tests.integration.engine.outside_runs import REPORTS, leased, served
from tests.support.agents import END, TOOLS, call_text
from tests.support.dialogue import by_turn
from tests.support.families import write_family
from tests.support.waiting import until
from toolwright.chat.tokenizer import ChatTokenizer
from toolwright.rpc.options import TOKEN_VARIABLE
from toolwright.types import Author, StopReason

pytestmark = pytest.mark.slow

SAID = ["I look.\n" + call_text("here") + END, call_text("there") + END, "Nothing found." + END]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_conversation_with_tools_is_one_sequence(
    world: MakeWorld, codec: HuggingFaceCodec, stream: bool
) -> None:
    here = await world(script=by_turn(codec, SAID, mark="no cat"))
    make = partial(ChatTokenizer, here.tables["policy"]["model"])
    table = IngressTable(address="127.0.0.1:0")
    async with (
        served(here) as (run, client),
        served_ingress(make, table, engine=here.tables["run"]["engine"]) as http,
    ):
        taken = await client.take()
        url = f"http://127.0.0.1:{http.port}/t/{taken.key}/v1"
        messages: list[Any] = [{"role": "user", "content": "Where is <|im_end|>?"}]
        async with AsyncOpenAI(base_url=url, api_key="unused", max_retries=0) as agent:
            for _ in SAID:
                asked = {"model": "policy", "messages": messages, "tools": TOOLS}
                if stream:
                    async with agent.chat.completions.stream(**asked) as events:
                        message = (await events.get_final_completion()).choices[0].message
                else:
                    found = await agent.chat.completions.create(**asked)
                    message = found.choices[0].message
                messages.append(message.model_dump(exclude_none=True))
                messages += [
                    {"role": "tool", "tool_call_id": call.id, "content": "no cat"}
                    for call in message.tool_calls or []
                ]
        assert messages[-1]["content"] == "Nothing found.", messages
        assert await client.end(taken.key, answer="no") == 3
        trajectory = await leased(run)
    (sequence,) = trajectory.sequences
    for request in here.sampler.requests:
        assert list(sequence.token_ids[: len(request.input_ids)]) == list(request.input_ids)
    spoken = [s for s in sequence.segments if s.author is Author.MODEL]
    assert [codec.decode(one.token_ids) for one in spoken] == SAID
    assert all(one.trainable for one in spoken)
    assert trajectory.stop_reason is StopReason.ANSWERED
    assert [(call.tool, call.outcome.observation) for call in trajectory.calls] == [
        ("look", "no cat")
    ] * 2


@pytest.mark.parametrize(("thinking", "sequences"), [("keep", 1), ("template", 3)])
async def test_a_template_that_strips_thoughts_forks_only_as_deployed(
    world: MakeWorld, tmp_path: Path, thinking: str, sequences: int
) -> None:
    policy = write_family(tmp_path / "qwen3", "qwen3")
    codec = HuggingFaceCodec(policy)
    said = [f"<think>\nhm {number}\n</think>\n\nHello.{END}" for number in range(3)]
    here = await world(script=by_turn(codec, said, mark="no cat"), policy=policy)
    make = partial(ChatTokenizer, policy)
    table = IngressTable.model_validate({"address": "127.0.0.1:0", "thinking": thinking})
    async with (
        served(here) as (run, client),
        served_ingress(make, table, engine=here.tables["run"]["engine"]) as http,
    ):
        taken = await client.take()
        url = f"http://127.0.0.1:{http.port}/t/{taken.key}/v1"
        messages: list[Any] = [{"role": "user", "content": "q"}]
        async with AsyncOpenAI(base_url=url, api_key="unused", max_retries=0) as agent:
            for _ in said:
                found = await agent.chat.completions.create(model="policy", messages=messages)
                messages.append({"role": "assistant", "content": found.choices[0].message.content})
                messages.append({"role": "user", "content": "no cat"})
        await client.end(taken.key)
        trajectory = await leased(run)
    assert len(trajectory.sequences) == sequences
    written = [s for one in trajectory.sequences for s in one.segments if s.trainable]
    assert sorted(codec.decode(s.token_ids) for s in written if s.author is Author.MODEL) == said
    assert [one.parent is None for one in trajectory.sequences] == [True] + [False] * (
        sequences - 1
    )


async def test_a_reward_by_response_id_is_its_turn_s(
    world: MakeWorld, codec: HuggingFaceCodec
) -> None:
    here = await world(script=by_turn(codec, ["one" + END, "two" + END], mark="no cat"))
    make = partial(ChatTokenizer, here.tables["policy"]["model"])
    table = IngressTable(address="127.0.0.1:0")
    async with (
        served(here, task=REPORTS) as (run, client),
        served_ingress(make, table, engine=here.tables["run"]["engine"]) as http,
    ):
        taken = await client.take()
        root = f"http://127.0.0.1:{http.port}"
        agent = AsyncOpenAI(base_url=f"{root}/t/{taken.key}/v1", api_key="x", max_retries=0)
        environment = AsyncOpenAI(base_url=f"{root}/v1", api_key=taken.reward_key, max_retries=0)
        async with agent, environment:
            messages: list[Any] = [{"role": "user", "content": "q"}]
            said = []
            for stream in (False, True):
                found: Any = await agent.chat.completions.create(
                    model="policy", messages=messages, stream=stream
                )
                ids = [chunk.id async for chunk in found] if stream else [found.id]
                said.append(ids.pop())
                messages += [{"role": "assistant", "content": "one"}, messages[0]]
            for value, response in zip((0.25, 0.5), said, strict=True):
                body = {"reward": value, "response_id": response}
                await environment.post("/reward", body=body, cast_to=object)
            await environment.post("/reward", body={"reward": 2}, cast_to=object)
            ended = await agent.post("/end", body={"answer": "a"}, cast_to=object)
        assert ended == {"status": "ended", "calls": 2}
        trajectory = await leased(run)
    assert trajectory.reward == 2
    assert [(part.turn, part.value) for part in trajectory.reward_parts] == [(0, 0.25), (1, 0.5)]
    assert trajectory.metadata["answer"] == "a"


async def test_a_driver_submits_takes_rewards_and_ends_over_http(
    world: MakeWorld, codec: HuggingFaceCodec, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = await world(script=by_turn(codec, ["one" + END], mark="no cat"))
    make = partial(ChatTokenizer, here.tables["policy"]["model"])
    table = IngressTable(address="127.0.0.1:0")
    calls_back = {"source": "submitted", "agent": {"reward_from": "callback"}}
    async with served(here, task=calls_back) as (run, _):
        monkeypatch.setenv(TOKEN_VARIABLE, "token")
        async with served_ingress(make, table, engine=here.tables["run"]["engine"]) as http:
            root = f"http://127.0.0.1:{http.port}"
            driver = AsyncOpenAI(base_url=f"{root}/v1", api_key="token", max_retries=0)
            task = {"id": "q1", "prompt": "What?", "answers": ["42"], "metadata": {"a": [1]}}

            async def post(path: str, **body: Any) -> Any:
                return await driver.post(path, body=body, cast_to=object)

            async with driver:
                assert await post("/trajectories", tasks=[task]) == {"accepted": 1, "known": 0}
                assert await post("/trajectories", tasks=[task]) == {"accepted": 0, "known": 1}
                with pytest.raises(openai.ConflictError):
                    await post("/trajectories", tasks=[{**task, "prompt": "Another?"}])
                taken = await post("/trajectories/take", worker="w", number=1, wait=30)
                assert {key: taken["task"][key] for key in task} == task
                url = f"{root}{taken['base_path']}"
                async with AsyncOpenAI(base_url=url, api_key="x", max_retries=0) as agent:
                    messages: Any = [{"role": "user", "content": taken["task"]["prompt"]}]
                    await agent.chat.completions.create(model="policy", messages=messages)
                ended = await post("/trajectories/end", key=taken["key"], outcome="timed_out")
                assert ended["calls"] == 1
                reward = f"{root}/t/{taken['reward_key']}/v1/reward"
                await driver.post(reward, body={"reward": 0.5}, cast_to=object)
        trajectory = await leased(run)
    assert (trajectory.task.id, trajectory.reward) == ("q1", 0.5)
    assert trajectory.stop_reason is StopReason.TRAJECTORY_TIMEOUT


async def test_an_ingress_with_another_template_serves_no_agent(
    world: MakeWorld, tmp_path: Path
) -> None:
    here = await world()
    make = partial(ChatTokenizer, write_family(tmp_path / "qwen3", "qwen3"))
    table = IngressTable(address="127.0.0.1:0")
    async with (
        served(here) as (_run, client),
        served_ingress(make, table, engine=here.tables["run"]["engine"]) as http,
    ):
        taken = await client.take()
        url = f"http://127.0.0.1:{http.port}/t/{taken.key}/v1"
        messages: Any = [{"role": "user", "content": "q"}]
        async with AsyncOpenAI(base_url=url, api_key="unused", max_retries=0) as agent:
            with pytest.raises(openai.InternalServerError, match=r"in the engine and .* ingress"):
                await agent.chat.completions.create(model="policy", messages=messages)
        await client.end(taken.key)


async def test_an_engine_that_restarts_delays_a_response(
    world: MakeWorld, codec: HuggingFaceCodec
) -> None:
    text = "one two three four " * 10 + END
    here = await world(
        script=by_turn(codec, [text], mark="no cat"), timing=Timing(tokens_per_second=60)
    )
    make = partial(ChatTokenizer, here.tables["policy"]["model"])
    table = IngressTable(address="127.0.0.1:0")
    address = here.tables["run"]["engine"]
    async with served_ingress(make, table, engine=address) as http:
        async with served(here) as (run, client):
            taken = await client.take()
            url = f"http://127.0.0.1:{http.port}/t/{taken.key}/v1"
            agent = AsyncOpenAI(base_url=url, api_key="unused", max_retries=0)
            messages: Any = [{"role": "user", "content": "q"}]
            waiting = asyncio.create_task(
                agent.chat.completions.create(model="policy", messages=messages)
            )
            await until(lambda: len(here.sampler.requests) == 1, "the request")
            await run.drain()
        assert not waiting.done()
        async with served(here) as (run, client):
            found = await waiting
            assert found.choices[0].message.content == text.removesuffix(END)
            await client.end(taken.key)
            trajectory = await leased(run)
        await agent.close()
    (sequence,) = trajectory.sequences
    assert codec.decode(sequence.segments[-1].token_ids).endswith(END)
    for one in here.sampler.requests:
        assert list(sequence.token_ids[: len(one.input_ids)]) == list(one.input_ids)
