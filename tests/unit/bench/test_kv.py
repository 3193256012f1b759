"""`bench kv`: the engine's gate over a modelled GPU, on a virtual clock."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, cast

import aiohttp
import pytest
from typer.testing import CliRunner

from bench.cli import app
from bench.kv.playing import Machine, ModelledSampler, play, request_of
from bench.kv.workloads import WORKLOADS
from bench.scripted import Gpu, ScriptedSampler, replies
from bench.simulate.virtual.loop import VirtualLoop
from engine.core.sampler.policy_sampler import PolicySampler
from engine.core.sampler.wire.client import Load, SamplerClient
from engine.serving.admission.cache_gate import CacheGate
from engine.serving.admission.cache_limit import CacheLimit
from engine.serving.admission.places import Places

pytestmark = pytest.mark.quick

MACHINE = Machine(
    cache_tokens=400_000, prefill_rate=20_000.0, decode_rate=4_000.0, stream_rate=50.0
)


def test_the_controller_avoids_most_of_the_thrash_and_repeats() -> None:
    auto, again = (play(WORKLOADS["steady"], MACHINE, trajectories=10, limit=None) for _ in "ab")
    assert auto == again
    fixed = play(WORKLOADS["steady"], MACHINE, trajectories=10, limit=10)
    assert fixed.computed > 3 * auto.computed
    assert fixed.seconds > 1.5 * auto.seconds


def test_a_cache_with_room_for_all_changes_nothing() -> None:
    large = replace(MACHINE, cache_tokens=100_000_000)
    auto, fixed = (
        play(WORKLOADS["steady"], large, trajectories=6, limit=limit) for limit in (None, 6)
    )
    assert auto.most == 6
    assert auto.seconds == pytest.approx(fixed.seconds, rel=0.01)


def on_a_virtual_clock(work: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(Random(0))) as runner:
        runner.run(work)


class Counting(CacheLimit):
    """Counts how often the number of trajectories is computed."""

    count = 0

    def limit(self) -> int:
        self.count += 1
        return super().limit()


def test_the_number_of_places_follows_the_actions_ten_times_a_second() -> None:
    async def work() -> None:
        sampler, places = ModelledSampler(MACHINE), Places(1)
        limit = Counting(most=99, longest=1_000)
        gate = CacheGate(cast("PolicySampler", sampler), limit, places, sampler.look)
        await gate.look()
        before, earlier = limit.count, places.limit
        for number in range(50):
            gate.release(f"g{number}")
        assert limit.count == before
        await asyncio.sleep(0.11)
        assert limit.count == before + 1
        await gate.generate(request_of("g1", 9_000, 10))
        await asyncio.sleep(0.11)
        assert places.limit == limit.limit() != earlier

    on_a_virtual_clock(work())


def test_a_cancelled_wait_leaves_nothing_behind() -> None:
    async def work() -> None:
        sampler = ModelledSampler(MACHINE)
        places = Places(1)
        gate = CacheGate(
            cast("PolicySampler", sampler), CacheLimit(most=9, longest=10), places, sampler.look
        )
        await gate.look()
        first = asyncio.create_task(gate.generate(request_of("g1", 30_000, 10)))
        await asyncio.sleep(0)
        second = asyncio.create_task(gate.generate(request_of("g2", 10, 10)))
        third = asyncio.create_task(gate.generate(request_of("g3", 10, 10)))
        await asyncio.sleep(0)
        assert gate.waiting == 2
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        gate.release("g2")
        assert gate.waiting == 1
        await first
        assert not third.done()
        gate.release("g1")
        await third
        gate.release("g3")
        assert (gate.waiting, gate.limit.resident) == (0, 0)

    on_a_virtual_clock(work())


async def test_the_engine_reads_the_load_of_a_modelled_server() -> None:
    gpu = Gpu(cache_tokens=100)
    async with (
        ScriptedSampler(script=replies([[5, 6, 2]]), gpu=gpu) as server,
        aiohttp.ClientSession() as session,
    ):
        body = {"input_ids": [1] * 40, "session_id": "a"}
        async with session.post(server.url + "/generate", json=body) as answer:
            assert (await answer.json())["output_ids"] == [5, 6, 2]
        load = await SamplerClient(server.url, session, silence=5.0).load()
        async with session.get(server.url + "/metrics") as answer:
            metrics = await answer.text()
    assert load == Load(cache_tokens=100, cache_use=0.0, waiting=0)
    assert 'sglang:num_retracted_requests_total{model_name="scripted"} 0.0' in metrics


def test_the_command_names_the_best_fixed_limit(tmp_path: Path) -> None:
    words = ["kv", "steady", "--cache", "400000", "--limits", "2,4", "--trajectories", "6"]
    done = CliRunner().invoke(app, [*words, "--json", str(tmp_path / "cells.json")])
    assert done.exit_code == 0, done.output
    (cell,) = json.loads((tmp_path / "cells.json").read_text(encoding="utf-8"))["cells"]
    assert cell["fixed"][str(cell["best"])]["seconds"] == min(
        one["seconds"] for one in cell["fixed"].values()
    )
    assert cell["quicker"] > 1


def test_an_unknown_workload_is_one_sentence() -> None:
    done = CliRunner().invoke(app, ["kv", "nothing"])
    assert done.exit_code == 2
    assert "the workloads are steady" in done.stderr
