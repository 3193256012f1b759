"""One run: samplers, and either the bare loop or a tool service with a real engine.

Owns what is started, in which order, and what is read from it while it runs. All processes share
one machine; their CPU clocks tell their shares apart.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import grpc.aio

from bench.dispatch.measure import BIN
from bench.dispatch.workload import write_policy
from bench.makespan import sleeper
from bench.makespan.plan import STOP, Workload, ideal_makespan
from bench.makespan.recipe import admission, recipe
from bench.makespan.sampler import Stamp, read_stamps
from bench.tools.load.usage import cpu_seconds, thread_seconds
from console.errors import NotReady
from console.machine.memory import resident_peak
from console.machine.processes import Command, Processes, Running
from console.machine.ready import accepts, free_ports, origin
from engine.serving.telemetry.lag import BOUNDS
from toolwright.common.v1.trajectory_pb2 import Trajectory as TrajectoryMessage
from toolwright.rollout.v1 import rollout_pb2, rollout_pb2_grpc
from toolwright.rpc.channel import open_channel

PATIENCE = 8
"""Times the ideal makespan, and a minute: then a run has failed."""
POLL_S = 0.1
ENOUGH = 0.99
"""Of all places: with several samplers each tells in steps of a hundredth."""
READY_S = 60.0
TELL_S = 5.0
GROUPS_A_LEASE = 256
STAMPS = "stamps-{}.json"
_BEGAN = re.compile(r"^began (\d+)$", re.MULTILINE)
_BUCKET = re.compile(
    r'^toolwright_engine_loop_lag_seconds_bucket\{le="([^"]+)"\} (\S+)$', re.MULTILINE
)

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRun:
    """What one run of the engine left. Times in s, stamps in ns of the monotonic clock."""

    began_ns: int
    makespan_s: float
    cpu_s: float
    start_cpu_s: float
    threads_cpu_s: tuple[float, ...]
    """Of the engine, its start included: the main thread, then the others by size."""
    sampler_cpu_s: float
    tools_cpu_s: float
    bench_cpu_s: float
    rss_mb: float
    lag_counts: tuple[int, ...]
    """Counts after the ramp-up, by bucket of `engine.serving.telemetry.lag.BOUNDS`; empty for an
    engine that does not measure it."""
    busy_lag_counts: tuple[int, ...]
    """From there until half of the trajectories were at the consumer."""
    ramp_up_s: float
    stamps: tuple[Stamp, ...]
    records: tuple[TrajectoryMessage, ...] = field(repr=False)


async def run_bare(
    workload: Workload,
    places: int,
    folder: Path,
    processes: Processes,
    *,
    program: str = "bench.makespan.bare",
) -> dict[str, Any]:
    """The figures of a loop without tools and journal, with its sampler's CPU time and stamps.

    program: the module that is run, for another order of the same work.
    """
    (port,) = free_ports(1)
    (sampler,) = await start_samplers(workload, [workload], [port], folder, processes)
    before = cpu_seconds([sampler.pid])
    result = folder / "bare.json"
    await processes.while_alive(
        processes.run(
            Command(
                name="bare",
                argv=(
                    sys.executable, "-m", program, str(folder / "sampler-0.json"),
                    f"http://127.0.0.1:{port}", str(places), str(result),
                ),
            )
        )
    )  # fmt: skip
    figures: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
    figures["sampler_cpu_s"] = cpu_seconds([sampler.pid]) - before
    await processes.stop(sampler)
    figures["stamps"] = read_stamps(folder / STAMPS.format(0))
    return figures


async def run_engine(
    workload: Workload,
    places: int,
    folder: Path,
    processes: Processes,
    *,
    samplers: Sequence[Workload],
    say: Say,
) -> EngineRun:
    """Plays all plans through an engine. `samplers`: one each, with a rate of its own.

    ProcessFailed when a process does not start, ends by itself, or takes much too long.
    """
    *ports, tools_port, engine_port, metrics_port = free_ports(len(samplers) + 3)
    write_policy(folder / "policy", STOP)
    text = recipe(
        workload,
        folder=folder,
        samplers=ports,
        tools=tools_port,
        engine=engine_port,
        metrics=metrics_port,
        places=places,
    )
    (folder / "recipe.toml").write_text(text, encoding="utf-8")
    playing = await start_samplers(workload, samplers, ports, folder, processes)
    tools = await processes.start(
        Command(
            name=f"tools-{folder.name}",
            argv=(
                str(BIN / "toolsvc"), "serve", sleeper.__file__,
                "--listen", f"127.0.0.1:{tools_port}",
                "--max-sessions", str(2 * workload.trajectories),
            ),
        )
    )  # fmt: skip
    await processes.while_alive(_all_accept([tools_port]))
    others = [one.pid for one in playing]
    samplers_before, tools_before = cpu_seconds(others), cpu_seconds([tools.pid])
    bench_before = time.process_time()
    engine = await processes.start(
        Command(
            name=f"engine-{folder.name}",
            argv=(str(BIN / "engine"), "serve", str(folder / "recipe.toml")),
        )
    )
    await processes.while_alive(_all_accept([engine_port]))
    watch = _Watch(places, engine, playing, metrics_port)
    limit = 60 + PATIENCE * ideal_makespan(workload.plans(), places)
    try:
        records, ended_ns = await processes.while_alive(
            _while_watching(watch, engine_port, workload, limit, say)
        )
    except TimeoutError as error:
        raise NotReady(engine.failed(f"was not done after {limit:.0f} s")) from error
    cpu, threads = cpu_seconds([engine.pid]), thread_seconds(engine.pid)
    began_ns, start_cpu_ns = admission(engine.log.read_text(errors="replace", encoding="utf-8"))
    lag, busy_lag = watch.lag_until(await watch.buckets()), watch.lag_until(watch.half_done)
    used = [cpu_seconds(others), cpu_seconds([tools.pid]), time.process_time()]
    peak = resident_peak(engine.pid)
    for one in (engine, tools, *playing):
        await processes.stop(one)
    return EngineRun(
        began_ns=began_ns,
        makespan_s=(ended_ns - began_ns) / 1e9,
        cpu_s=cpu - start_cpu_ns / 1e9,
        start_cpu_s=start_cpu_ns / 1e9,
        threads_cpu_s=tuple(threads),
        sampler_cpu_s=used[0] - samplers_before,
        tools_cpu_s=used[1] - tools_before,
        bench_cpu_s=used[2] - bench_before,
        rss_mb=peak / 2**20,
        lag_counts=lag,
        busy_lag_counts=busy_lag,
        ramp_up_s=(watch.ramped_ns - began_ns) / 1e9,
        stamps=tuple(
            stamp
            for index in range(len(playing))
            for stamp in read_stamps(folder / STAMPS.format(index))
        ),
        records=tuple(records),
    )


async def start_samplers(
    workload: Workload,
    samplers: Sequence[Workload],
    ports: Sequence[int],
    folder: Path,
    processes: Processes,
) -> list[Running]:
    """One process each; returns once all of them answer."""
    running = []
    for index, (one, port) in enumerate(zip(samplers, ports, strict=True)):
        file = folder / f"sampler-{index}.json"
        one.write(file)
        running.append(
            await processes.start(
                Command(
                    name=f"sampler-{folder.name}-{index}",
                    argv=(
                        sys.executable, "-m", "bench.makespan.sampler", str(file), str(port),
                        str(folder / STAMPS.format(index)),
                    ),
                )
            )
        )  # fmt: skip
    await processes.while_alive(_all_accept(ports))
    return running


class _Watch:
    """What is looked at while the engine runs: how many have begun, and its lag from then on."""

    def __init__(
        self, places: int, engine: Running, samplers: Sequence[Running], metrics: int
    ) -> None:
        self._places = places
        self._engine = engine
        self._samplers = samplers
        self._url = f"http://127.0.0.1:{metrics}/metrics"
        self._before: Sequence[int] = ()
        self.half_done: Sequence[int] = ()
        """The buckets when half of the trajectories were at the consumer."""
        self.ramped_ns = 0

    async def until_ramped_up(self) -> None:
        """Returns once every place has sent a first request."""
        async for begun in self._look():
            if begun >= ENOUGH * self._places:
                break
        self.ramped_ns = time.monotonic_ns()
        self._before = await self.buckets()

    async def _look(self) -> AsyncIterator[int]:
        """How many have begun, again and again."""
        while True:
            yield sum(map(_begun, self._samplers))
            await asyncio.sleep(POLL_S)

    def lag_until(self, then: Sequence[int]) -> tuple[int, ...]:
        """How many lags fell into each bucket between the ramp-up's end and `then`."""
        cumulative = [after - before for after, before in zip(then, self._before, strict=False)]
        return tuple(
            count - below for count, below in zip(cumulative, [0, *cumulative], strict=False)
        )

    async def buckets(self) -> list[int]:
        """Cumulative counts; none where the engine does not measure its lag."""
        async with aiohttp.ClientSession() as session, session.get(self._url) as answer:
            found = _BUCKET.findall(await answer.text())
        assert len(found) in (0, len(BOUNDS) + 1), "the buckets are those of this version"
        return [int(float(count)) for _, count in found]


async def _while_watching(
    watch: _Watch, port: int, workload: Workload, limit: float, say: Say
) -> tuple[list[TrajectoryMessage], int]:
    async with asyncio.timeout(limit), asyncio.TaskGroup() as group:
        ramp = group.create_task(watch.until_ramped_up())
        tell = group.create_task(_tell(port, workload, say))
        records: list[TrajectoryMessage] = []
        async for record in _leased(port, workload.trajectories):
            records.append(record)
            half = len(records) >= workload.trajectories // 2
            if half and watch.ramped_ns and not watch.half_done:
                watch.half_done = await watch.buckets()
        ended_ns = time.monotonic_ns()
        await ramp
        tell.cancel()
    return records, ended_ns


async def _leased(port: int, trajectories: int) -> AsyncIterator[TrajectoryMessage]:
    """Every record, leased from the engine as a learner would."""
    mark, left = 0, trajectories
    async with open_channel(f"127.0.0.1:{port}") as channel:
        stub = rollout_pb2_grpc.RolloutServiceStub(channel)
        version = await origin(stub)
        while left:
            request = rollout_pb2.LeaseGroupsRequest(
                consumer=rollout_pb2.CONSUMER_TRAIN,
                after_sequence=mark,
                max_groups=min(GROUPS_A_LEASE, left),
                version=version,
            )
            async for item in stub.LeaseGroups(request):
                if item.HasField("group"):
                    mark = item.group.sequence_number
                else:
                    left -= 1
                    yield item.trajectory


async def _tell(port: int, workload: Workload, say: Say) -> None:
    began = time.monotonic()
    async with open_channel(f"127.0.0.1:{port}") as channel:
        stub = rollout_pb2_grpc.RolloutServiceStub(channel)
        while True:
            await asyncio.sleep(TELL_S)
            try:
                status = await stub.GetStatus(rollout_pb2.GetStatusRequest(), timeout=TELL_S)
            except grpc.aio.AioRpcError:
                continue  # a busy engine; the next look tells
            say(
                f"{time.monotonic() - began:.0f} s: {status.accepted} of "
                f"{workload.trajectories} trajectories done"
            )


def _begun(sampler: Running) -> int:
    found = _BEGAN.findall(sampler.log.read_text(errors="replace", encoding="utf-8"))
    return int(found[-1]) if found else 0


async def _all_accept(ports: Sequence[int]) -> None:
    async with asyncio.timeout(READY_S):
        await asyncio.gather(*map(accepts, ports))
