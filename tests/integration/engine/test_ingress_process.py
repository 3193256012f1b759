"""An engine that is killed in the middle of an outside agent's call, and started again."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest
from openai import AsyncOpenAI

from bench.scripted import Timing
from engine.core.text.codec import HuggingFaceCodec
from ingress.config import IngressTable
from ingress.serving import served as served_ingress
from tests.integration.engine.conftest import MakeWorld
from tests.integration.engine.test_process import process
from tests.support.dialogue import by_turn
from tests.support.ingress_client import IngressClient
from tests.support.recipes import ONE
from toolwright.chat.tokenizer import ChatTokenizer
from toolwright.rpc.channel import open_channel
from toolwright.rpc.errors import ServiceError, TransportError
from toolwright.types import Author

pytestmark = pytest.mark.slow

REPLIES = ["hello<|im_end|>", "one two three four " * 10 + "<|im_end|>"]


async def test_a_killed_engine_answers_the_marked_retry(
    world: MakeWorld, codec: HuggingFaceCodec
) -> None:
    here = await world(
        script=by_turn(codec, REPLIES),
        timing=Timing(tokens_per_second=40),
        run=ONE,
        task={"agent": {}},
    )
    address = here.tables["run"]["engine"]
    async with process(here) as (engine, _), open_channel(address) as channel:
        client = IngressClient(channel, codec)
        taken = await client.take()
        history = await client.talk(taken.key, ["q"])
        broken = await client.ask(taken.key, [*history, "2"], stream=True)
        await broken.prompt("</result>")
        assert (await broken.read()).HasField("delta")
        engine.kill()
        with pytest.raises((ServiceError, TransportError)):
            await broken.completions()
    async with process(here) as (_, learner), open_channel(address) as channel:
        client = IngressClient(channel, codec)
        again = await client.ask(taken.key, [*history, "2"], retry=True)
        await again.completions()
        assert again.texts() == [REPLIES[1]]
        await again.reply()
        await client.end(taken.key)
        ((trajectory,),) = [group.members for group in await learner.lease()]
    (sequence,) = trajectory.sequences
    assert [s.author for s in sequence.segments] == [Author.PROMPT, Author.MODEL] * 2
    for one in here.sampler.requests:
        assert list(sequence.token_ids[: len(one.input_ids)]) == list(one.input_ids)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_killed_engine_goes_on_from_a_named_response(
    world: MakeWorld, codec: HuggingFaceCodec, stream: bool
) -> None:
    said = ["hello<|im_end|>", "again<|im_end|>", "last<|im_end|>"]
    here = await world(script=by_turn(codec, said, mark="no cat"), run=ONE, task={"agent": {}})
    address = here.tables["run"]["engine"]
    make = partial(ChatTokenizer, here.tables["policy"]["model"])
    table = IngressTable(address="127.0.0.1:0")

    async def response(port: int, key: str, **asked: Any) -> Any:
        url = f"http://127.0.0.1:{port}/t/{key}/v1"
        async with AsyncOpenAI(base_url=url, api_key="unused", max_retries=0) as agent:
            if not stream:
                return await agent.responses.create(model="policy", **asked)
            async with agent.responses.stream(model="policy", **asked) as events:
                return await events.get_final_response()

    async with (
        served_ingress(make, table, engine=address) as one,
        served_ingress(make, table, engine=address) as other,
    ):
        async with process(here) as (engine, _), open_channel(address) as channel:
            taken = await IngressClient(channel, codec).take()
            first = await response(one.port, taken.key, input="q")
            engine.kill()
        named: Any = {"input": "no cat", "previous_response_id": first.id}
        waiting = asyncio.create_task(response(other.port, taken.key, **named))
        async with process(here) as (_, learner), open_channel(address) as channel:
            second = await waiting
            named["previous_response_id"] = second.id
            third = await response(one.port, taken.key, **named)
            assert third.output_text == "last"
            await IngressClient(channel, codec).end(taken.key)
            ((trajectory,),) = [group.members for group in await learner.lease()]
    (sequence,) = trajectory.sequences
    spoken = [s for s in sequence.segments if s.author is Author.MODEL]
    assert [codec.decode(one.token_ids) for one in spoken] == said
    for one_request in here.sampler.requests:
        ids = list(one_request.input_ids)
        assert list(sequence.token_ids[: len(ids)]) == ids
