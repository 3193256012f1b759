"""An engine that is killed in the middle of an outside agent's call, and started again."""

from __future__ import annotations

import pytest

from bench.scripted import Timing
from engine.core.text.codec import HuggingFaceCodec
from tests.integration.engine.conftest import MakeWorld
from tests.integration.engine.test_process import process
from tests.support.dialogue import by_turn
from tests.support.ingress_client import IngressClient
from tests.support.recipes import ONE
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
