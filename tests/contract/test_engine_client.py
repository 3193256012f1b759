"""The engine's sampler client reads every kind of stream, in both shapes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from bench.scripted import Break, BreakHow, Faults, ScriptedSampler, Timing, cycle
from engine.core.sampler.wire.client import SamplerClient, ServerRefused, ServerUnreachable
from engine.core.sampler.wire.events import Chunk, ChunkReader, WireError
from engine.core.sampler.wire.request import generate_request
from tests.support.waiting import passes
from toolwright.types import FinishKind, SamplingParams

pytestmark = pytest.mark.quick

STOP = 260
VOCABULARY = 320
FAULTS = Faults(
    breaks={
        0: Break(chunks=3),
        1: Break(chunks=3, how=BreakHow.DONE),
        2: Break(chunks=3, how=BreakHow.ERROR),
        3: Break(chunks=3, how=BreakHow.STALL),
    }
)


def request(rid: str, max_new_tokens: int = 64) -> dict[str, Any]:
    return generate_request(
        rid=rid,
        input_ids=[1, 2, 3],
        sampling=SamplingParams(temperature=1.0),
        max_new_tokens=max_new_tokens,
        stop_token_ids=[STOP],
    )


def endless(max_new_tokens: int) -> dict[str, Any]:
    """A request that no token ends."""
    body = request("a", max_new_tokens)
    body["sampling_params"]["stop_token_ids"] = []
    return body


@pytest.fixture(params=["delta", "cumulative"])
def incremental(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "delta")


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as opened:
        yield opened


@pytest.fixture
async def sampler(incremental: bool) -> AsyncIterator[ScriptedSampler]:
    async with ScriptedSampler(
        script=cycle(stop_id=STOP, every=20, vocabulary=200),
        timing=Timing(tokens_per_second=500),
        incremental=incremental,
    ) as running:
        yield running


@pytest.fixture
def client(sampler: ScriptedSampler, session: aiohttp.ClientSession) -> SamplerClient:
    return SamplerClient(sampler.url, session, silence=30)


async def read(client: SamplerClient, body: dict[str, Any], *, incremental: bool) -> list[Chunk]:
    chunks: list[Chunk] = []

    def take(chunk: Chunk, _read_ns: int) -> bool:
        chunks.append(chunk)
        return True

    reader = ChunkReader(
        incremental=incremental,
        vocab_size=VOCABULARY,
        max_new_tokens=body["sampling_params"]["max_new_tokens"],
    )
    await client.open_stream(reader=reader, on_chunk=take).read(body)
    return chunks


async def test_learns_the_shape(client: SamplerClient, incremental: bool) -> None:
    info = await client.info()
    assert info.incremental is incremental
    assert info.weight_version == "default"


@pytest.mark.parametrize(
    ("most", "kind", "count"), [(64, FinishKind.STOP, 20), (7, FinishKind.LENGTH, 7)]
)
async def test_whole_streams(
    client: SamplerClient, incremental: bool, most: int, kind: FinishKind, count: int
) -> None:
    chunks = await read(client, request("a", most), incremental=incremental)
    ids = [i for chunk in chunks for i in chunk.token_ids]
    assert len(ids) == sum(len(chunk.logprobs) for chunk in chunks) == count
    finish = chunks[-1].finish
    assert finish is not None
    assert finish.kind is kind
    if kind is FinishKind.STOP:
        assert finish.matched_token == ids[-1] == STOP
    assert chunks[-1].weight_spans == (("default", 0, count),)


@pytest.mark.parametrize("queued", [False, True])
async def test_abort(client: SamplerClient, incremental: bool, queued: bool) -> None:
    """The last event of a reply aborted during a retracting pause repeats what was sent, and adds
    no token."""
    reading = asyncio.create_task(read(client, endless(4000), incremental=incremental))
    await passes(0.1, "the reply is under way")
    if queued:
        await client.pause("retract")
        await passes(0.05, "the reply is taken back into the queue")
    await client.abort("a")
    chunks = await reading
    await client.resume()
    assert chunks[-1].finish is not None
    assert chunks[-1].finish.kind is FinishKind.ABORT
    assert chunks[-1].weight_spans[-1][2] == sum(len(chunk.token_ids) for chunk in chunks)


async def test_weights_change_under_the_stream(
    client: SamplerClient, incremental: bool, tmp_path: Any
) -> None:
    reading = asyncio.create_task(read(client, endless(60), incremental=incremental))
    await passes(0.05, "the reply is under way")
    await client.pause("retract")
    await client.update_from_disk(str(tmp_path), "v1", flush_cache=True)
    assert await client.weight_version() == "v1"
    await client.resume()
    chunks = await reading
    assert [version for version, _, _ in chunks[-1].weight_spans] == ["default", "v1"]
    assert {chunk.weight_version for chunk in chunks} == {"default", "v1"}


async def test_refusals(client: SamplerClient, incremental: bool) -> None:
    unknown = request("a")
    unknown["sampling_params"]["max_tokens"] = 1
    with pytest.raises(ServerRefused, match="max_tokens"):
        await read(client, unknown, incremental=incremental)
    impossible = request("a")
    impossible["sampling_params"]["temperature"] = -1.0
    with pytest.raises(WireError, match="temperature"):
        await read(client, impossible, incremental=incremental)
    with pytest.raises(ServerRefused, match="/no/such"):
        await client.update_from_disk("/no/such", "v1", flush_cache=True)


async def test_broken_streams(session: aiohttp.ClientSession, incremental: bool) -> None:
    """A stream without a finish reason is never taken for a whole one."""
    async with ScriptedSampler(
        script=cycle(stop_id=STOP, every=20, vocabulary=200),
        incremental=incremental,
        faults=FAULTS,
    ) as sampler:
        client = SamplerClient(sampler.url, session, silence=0.5)
        for number, error in enumerate(
            (ServerUnreachable, ServerUnreachable, WireError, ServerUnreachable)
        ):
            with pytest.raises(error):
                await read(client, request(f"r{number}"), incremental=incremental)
        assert sampler.scheduler.running == 0


async def test_stale_weights_are_seen(
    session: aiohttp.ClientSession, incremental: bool, tmp_path: Any
) -> None:
    async with ScriptedSampler(
        script=cycle(stop_id=STOP, every=20),
        incremental=incremental,
        faults=Faults(stale_weights=True, fail_updates=1),
    ) as sampler:
        client = SamplerClient(sampler.url, session, silence=5)
        with pytest.raises(ServerRefused, match="scripted"):
            await client.update_from_disk(str(tmp_path), "v1", flush_cache=True)
        await client.update_from_disk(str(tmp_path), "v1", flush_cache=True)
        assert await client.weight_version() == "default"


async def test_an_update_that_was_left_open_is_ended_by_the_next(
    sampler: ScriptedSampler, session: aiohttp.ClientSession
) -> None:
    client = SamplerClient(sampler.url, session, silence=5)
    await client.begin_update()
    await client.begin_update()
    await client.end_update()
    with pytest.raises(ServerRefused, match="no weight-update session is open"):
        await client.end_update()


async def test_a_server_of_an_older_version_needs_no_beginning(
    session: aiohttp.ClientSession,
) -> None:
    """It has no such routes, and takes tensors at any time."""
    runner = web.AppRunner(web.Application())
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        client = SamplerClient(url, session, silence=5)
        await client.begin_update()
        await client.end_update()
        with pytest.raises(ServerRefused, match="404"):
            await client.leave_group("any")
    finally:
        await runner.cleanup()
