"""Engine and ingress as processes, killed again and again under OpenAI's own client."""

from __future__ import annotations

import asyncio
import re
import sys
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random
from typing import Any

import pytest
from openai import AsyncOpenAI

from bench.scripted import ScriptRequest, Timing
from bench.simulate.outside.run import completions
from engine.core.text.codec import HuggingFaceCodec
from tests.integration.engine.conftest import MakeWorld, World
from tests.integration.engine.test_process import process
from tests.support.dialogue import said
from tests.support.ingress_client import IngressClient
from tests.support.net import free_port
from tests.support.recipes import PAIR, write_recipe
from tests.support.waiting import passes, until
from toolwright.rpc.channel import open_channel
from toolwright.types import Trajectory

pytestmark = pytest.mark.slow

PARTS, KILLS = 4, 5
"""Runs for each victim, and kills in a run: twenty together."""
START_S = 120.0
"""Longest start of a process, in seconds."""
END = "<|im_end|>"
_CALL = re.compile(r"#(\d+);")


def numbered(codec: HuggingFaceCodec) -> Any:
    """A script that answers the last `#7;` of a prompt."""

    def script(request: ScriptRequest) -> Sequence[int]:
        text = codec.decode(request.input_ids)
        reply = f"answer {_CALL.findall(text)[-1]}" + " and more" * 4 + END
        return codec.encode(reply)[said(codec, text, reply) :]

    return script


class Talker:
    """An agent that calls until `stops` is set. `heard` has the response of each call."""

    def __init__(self, url: str) -> None:
        self.heard: dict[int, str] = {}
        self.stops = False
        self._client = AsyncOpenAI(base_url=url, api_key="unused", max_retries=1000, timeout=600)
        self._messages: list[Any] = []

    async def run(self) -> None:
        while not self.stops:
            number = len(self.heard)
            self._messages.append({"role": "user", "content": f"#{number};"})
            found = await self._client.chat.completions.create(
                model="policy", messages=self._messages
            )
            text = str(found.choices[0].message.content)
            self._messages.append({"role": "assistant", "content": text})
            self.heard[number] = text
        await self._client.close()


@asynccontextmanager
async def ingress(here: World, port: int) -> AsyncIterator[tuple[Process]]:
    """`ingress serve` on the world's recipe, once it serves; killed if the test leaves it."""
    words = "-m", "ingress.cli", "serve", str(write_recipe(here.folder, here.tables))
    serving = await asyncio.create_subprocess_exec(
        sys.executable, *words, "--listen", f"127.0.0.1:{port}",
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        assert serving.stdout is not None
        async with asyncio.timeout(START_S):
            assert b"serving agents" in await serving.stdout.readline()
        yield (serving,)
    finally:
        if serving.returncode is None:
            serving.kill()
        await serving.wait()


def completed(record: Trajectory, codec: HuggingFaceCodec) -> Counter[tuple[int, str]]:
    """(call, text) of each completion of a record."""
    found = Counter[tuple[int, str]]()
    for sequence in record.sequences:
        for one in completions(sequence):
            assert not one.copied, "a marked retry forks nothing"
            number = int(_CALL.findall(codec.decode(one.prompt))[-1])
            found[number, codec.decode(one.token_ids).removesuffix(END)] += 1
    return found


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("victim", ["engine", "ingress"])
async def test_twenty_kills_lose_and_double_nothing(
    world: MakeWorld, codec: HuggingFaceCodec, victim: str, part: int
) -> None:
    here = await world(
        script=numbered(codec),
        timing=Timing(tokens_per_second=150),
        run=PAIR,
        task={"agent": {}, "limits": {"seconds": 3600.0}},
        engine={"max_concurrent": 4},
    )
    dice, port = Random(f"{victim} {part}"), free_port()
    talkers: dict[str, Talker] = {}

    async def more_calls(count: int) -> None:
        wanted = {key: len(one.heard) + count for key, one in talkers.items()}
        for key, one in talkers.items():
            await until(lambda one=one, n=wanted[key]: len(one.heard) >= n, "calls", START_S)  # type: ignore[misc]

    async with (
        AsyncExitStack() as lives,
        open_channel(here.tables["run"]["engine"]) as channel,
        asyncio.TaskGroup() as agents,
    ):
        start = {
            "engine": lambda: lives.enter_async_context(process(here)),
            "ingress": lambda: lives.enter_async_context(ingress(here, port)),
        }
        running: dict[str, Any] = {name: await begin() for name, begin in start.items()}
        client = IngressClient(channel, codec)
        for number in range(2):
            key = (await client.take(number)).key
            talkers[key] = Talker(f"http://127.0.0.1:{port}/t/{key}/v1")
            agents.create_task(talkers[key].run())
        for _ in range(KILLS):
            await more_calls(1)
            await passes(dice.uniform(0.0, 0.5), "the kill comes at any point of a call")
            running[victim][0].kill()
            await running[victim][0].wait()
            running[victim] = await start[victim]()
        await more_calls(1)
        for one in talkers.values():
            one.stops = True
        await more_calls(1)
        for key, one in talkers.items():
            assert await client.end(key) == len(one.heard)
        (group,) = await running["engine"][1].lease()
    recorded = [completed(record, codec) for record in group.members]
    assert all(Counter(one.heard.items()) in recorded for one in talkers.values())
