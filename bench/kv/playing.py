"""One run: trajectories under a fixed limit or the engine's controller, on a virtual clock."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from random import Random
from typing import Any, cast

from bench.kv.workloads import SCALE, ModelledWorkload
from bench.scripted.scheduling.batch import Gpu
from bench.scripted.scheduling.generation import Generation
from bench.scripted.scheduling.scheduler import Scheduler
from bench.scripted.scheduling.timing import Timing
from bench.scripted.types import GenerateRequest as WireRequest
from bench.scripted.types import Token
from bench.simulate.virtual.loop import VirtualLoop
from engine.core.sampler.policy_sampler import GenerateRequest, PolicySampler
from engine.core.sampler.wire.client import Load
from engine.serving.admission.cache_gate import CacheGate
from engine.serving.admission.cache_limit import CacheLimit
from engine.serving.admission.places import Places
from engine.types import Generated
from toolwright.types import FinishKind, FinishReason, SamplingParams, WeightVersion

CHUNK = 7
MOST_TURNS = 20_000_000
"""Turns of the loop of one run."""
VERSION = WeightVersion.parse("a1.0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The modelled GPU, in tokens of real traffic and tokens a second."""

    cache_tokens: int
    prefill_rate: float
    decode_rate: float
    stream_rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFigures:
    """What a run took."""

    seconds: float
    """Virtual seconds from the first request to the last token."""
    computed: int
    """Prompt tokens that the GPU computed, in tokens of real traffic."""
    retracted: int
    """Requests that the GPU sent back to its queue for want of room."""
    most: int
    """Largest number of trajectories in flight."""
    share: float = 0.0
    """The controller's last share of the cache."""


def play(
    workload: ModelledWorkload,
    machine: Machine,
    *,
    trajectories: int,
    limit: int | None,
    seed: int = 0,
) -> RunFigures:
    """limit: trajectories in flight; None = the engine's controller chooses."""
    loop = VirtualLoop(Random(f"kv {seed}"), most_turns=MOST_TURNS)
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(_play(workload, machine, trajectories, limit, seed))


class ModelledSampler:
    """The part of a `PolicySampler` that a run needs, over a modelled GPU."""

    vocab_size = 2
    any_up = True
    longest_prompt = None

    def __init__(self, machine: Machine) -> None:
        self._timing = Timing(tokens_per_second=machine.stream_rate / SCALE, tokens_per_chunk=CHUNK)
        gpu = Gpu(
            cache_tokens=machine.cache_tokens // SCALE,
            prefill_rate=machine.prefill_rate / SCALE,
            decode_rate=machine.decode_rate / SCALE,
        )
        self.scheduler = Scheduler(timing=self._timing, weight_version=str(VERSION), gpu=gpu)
        assert self.scheduler.batch is not None
        self.batch = self.scheduler.batch
        self._known: dict[str, int] = {}
        self._serial = 0

    async def generate(self, request: GenerateRequest) -> Generated:
        self._serial += 1
        rid, prompt = str(self._serial), len(request.token_ids)
        wire = WireRequest(
            rid=rid,
            input_ids=(0,) * prompt,
            stream=True,
            return_logprob=False,
            return_prompt_token_ids=False,
            max_new_tokens=request.max_new_tokens,
            stop_token_ids=frozenset(),
            ignore_eos=True,
            stream_interval=1,
            conversation=request.key,
            params={},
        )
        generation = Generation(
            request=wire,
            source=repeat(Token(1, -1.0)),
            delays=self._timing.delays(rid),
            eos=frozenset(),
            started=0.0,
            cached_tokens=self._known.get(request.key, 0),
        )
        self.scheduler.register(rid)
        self.scheduler.start(generation)
        while generation.finish is None:
            generation.changed.clear()
            await generation.changed.wait()
        await self.scheduler.forget(rid)
        tokens = len(generation.tokens)
        self._known[request.key] = prompt + tokens
        return Generated(
            token_ids=array("i", bytes(4 * tokens)),
            logprobs=array("f", bytes(4 * tokens)),
            versions=((VERSION, tokens),),
            finish=FinishReason(kind=FinishKind.LENGTH),
            prompt_tokens=prompt,
            cached_tokens=generation.cached_tokens,
            retractions=generation.retractions,
        )

    def release(self, key: str) -> None:
        self._known.pop(key, None)

    async def look(self) -> Sequence[Load]:
        cache = self.batch.cache
        waiting = self.batch.waiting(asyncio.get_running_loop().time())
        return [Load(cache_tokens=cache.capacity, cache_use=cache.usage, waiting=waiting)]


async def _play(
    workload: ModelledWorkload, machine: Machine, trajectories: int, limit: int | None, seed: int
) -> RunFigures:
    modelled = ModelledSampler(machine)
    pool = cast("PolicySampler", modelled)
    places, gate = Places(limit or trajectories), None
    plans = [workload.trajectory(seed, number) for number in range(trajectories)]
    watch: asyncio.Task[None] | None = None
    if limit is None:
        longest = max(
            prompt + sum(turn.action + turn.answer for turn in turns) for prompt, turns in plans
        )
        controller = CacheLimit(most=trajectories, longest=longest)
        gate = CacheGate(pool, controller, places, modelled.look)
        await gate.look()
        watch = asyncio.create_task(gate.watch())
    most = 0

    async def one(number: int) -> None:
        nonlocal most
        prompt, turns = plans[number]
        key, length = f"g{number:07d}-0/a0", prompt
        sampler = pool if gate is None else gate
        async with places:
            most = max(most, places.used)
            for place, turn in enumerate(turns):
                generated = await sampler.generate(request_of(key, length, turn.action))
                length += len(generated.token_ids) + turn.answer
                if place < len(turns) - 1:
                    await asyncio.sleep(turn.tool_s)
            sampler.release(key)

    loop = asyncio.get_running_loop()
    began = loop.time()
    async with asyncio.TaskGroup() as group:
        for number in range(trajectories):
            group.create_task(one(number))
    seconds = loop.time() - began
    if watch is not None:
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)
    batch = modelled.batch
    return RunFigures(
        seconds=seconds,
        computed=SCALE * (batch.prompt_tokens - batch.cached_tokens),
        retracted=batch.retracted,
        most=most,
        share=0.0 if gate is None else gate.limit.share,
    )


def request_of(key: str, length: int, tokens: int) -> GenerateRequest:
    """The next action of a trajectory, after `length` tokens."""
    nothing: Any = None
    return GenerateRequest(
        key=key,
        token_ids=array("i", bytes(4 * length)),
        sampling=SamplingParams(),
        stops=nothing,
        max_new_tokens=tokens,
    )
