"""Runs the load through real processes and reads the stamps from the trajectories."""

from __future__ import annotations

import asyncio
import platform
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import quantiles

import psutil

from bench.dispatch import noop
from bench.dispatch.workload import Load, recipe, write_policy
from console.machine.processes import Command, Processes, Running
from console.machine.ready import accepts, free_ports, origin
from toolwright.common.v1.trajectory_pb2 import CallRecord
from toolwright.rollout.v1 import rollout_pb2, rollout_pb2_grpc
from toolwright.rpc.channel import open_channel

BIN = Path(sys.executable).parent
READY_SECONDS = 60.0
LEASE_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Milliseconds."""

    p50: float
    p90: float
    p99: float
    max: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Latency:
        cuts = quantiles(values, n=100, method="inclusive")
        return cls(p50=cuts[49], p90=cuts[89], p99=cuts[98], max=max(values))


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """stop_to_call: the chunk's bytes were read -> the call was handed to the channel.
    round_trip: handed to the channel -> result there. engine_cpu_s: of the engine's process."""

    load: Load
    calls: int
    trajectories: int
    errors: int
    seconds: float
    stop_to_call_ms: Latency
    round_trip_ms: Latency
    engine_cpu_s: float
    machine: str
    versions: dict[str, str]

    def to_json(self) -> dict[str, object]:
        return asdict(self)


async def measure(load: Load, *, jitter: float) -> Report:
    """Starts sampler, tools and engine, waits for all trajectories, stops everything.

    ProcessFailed when one of them does not start or ends by itself.
    """
    with tempfile.TemporaryDirectory(prefix="dispatch-") as name:
        folder = Path(name)
        async with Processes(folder / "logs") as processes:
            return await _measure(load, jitter, folder, processes)


async def _measure(load: Load, jitter: float, folder: Path, processes: Processes) -> Report:
    stop_id = write_policy(folder / "policy")
    sampler, tools, port = free_ports(3)
    text = recipe(load, folder=folder, sampler=sampler, tools=tools, engine=port)
    (folder / "recipe.toml").write_text(text, encoding="utf-8")
    await processes.start(
        _command(
            "sampler", "bench", "scripted-sampler", "--port", str(sampler), "--jitter",
            str(jitter), "--tokens-per-second", str(load.rate), "--script",
            f"cycle:{stop_id}:{load.every}:{stop_id - 1}",
        )
    )  # fmt: skip
    await processes.start(
        _command("tools", "toolsvc", "serve", noop.__file__, "--listen", f"127.0.0.1:{tools}")
    )
    await asyncio.gather(*(_accepts(one) for one in (sampler, tools)))
    engine = await processes.start(
        _command("engine", "engine", "serve", str(folder / "recipe.toml"))
    )
    began = time.monotonic()
    calls, trajectories = await processes.while_alive(_collect(load, port))
    seconds = time.monotonic() - began
    made = [call for call in calls if call.timings.dispatched_ns]
    return Report(
        load=load,
        calls=len(made),
        trajectories=trajectories,
        errors=sum(bool(call.error) or not call.valid for call in calls),
        seconds=seconds,
        stop_to_call_ms=Latency.of(
            [(c.timings.dispatched_ns - c.timings.stop_read_ns) / 1e6 for c in made]
        ),
        round_trip_ms=Latency.of(
            [(c.timings.result_ns - c.timings.dispatched_ns) / 1e6 for c in made]
        ),
        engine_cpu_s=_cpu_seconds(engine),
        machine=f"{platform.machine()}, {psutil.cpu_count()} cores",
        versions={name: version(name) for name in ("grpcio", "uvloop", "httptools", "protobuf")},
    )


async def _collect(load: Load, port: int) -> tuple[list[CallRecord], int]:
    """Every call of every trajectory, leased from the engine as a learner would."""
    await _accepts(port)
    calls: list[CallRecord] = []
    mark = trajectories = 0
    async with open_channel(f"127.0.0.1:{port}") as channel:
        stub = rollout_pb2_grpc.RolloutServiceStub(channel)
        async with asyncio.timeout(READY_SECONDS):
            version = await origin(stub)
        while trajectories < load.trajectories:
            request = rollout_pb2.LeaseGroupsRequest(
                consumer=rollout_pb2.CONSUMER_TRAIN,
                after_sequence=mark,
                max_groups=load.trajectories - trajectories,
                version=version,
            )
            async for item in stub.LeaseGroups(request, timeout=LEASE_SECONDS):
                if item.HasField("group"):
                    mark = item.group.sequence_number
                    trajectories += item.group.members
                else:
                    calls.extend(item.trajectory.calls)
    return calls, trajectories


async def _accepts(port: int) -> None:
    async with asyncio.timeout(READY_SECONDS):
        await accepts(port)


def _command(name: str, program: str, *arguments: str) -> Command:
    return Command(name=name, argv=(str(BIN / program), *arguments))


def _cpu_seconds(running: Running) -> float:
    times = psutil.Process(running.pid).cpu_times()
    return float(times.user + times.system)


def lines(report: Report) -> Iterable[str]:
    """What a person wants to read."""
    load = report.load
    yield (
        f"{report.calls} calls of {report.trajectories} trajectories, {load.concurrency} in "
        f"flight, {load.rate:g} tokens/s each, a call every {load.every} tokens, "
        f"{report.seconds:.0f} s, {report.errors} errors"
    )
    for name, latency in (
        ("stop token to call", report.stop_to_call_ms),
        ("call to result", report.round_trip_ms),
    ):
        yield (
            f"{name:20s} p50 {latency.p50:.3f}  p90 {latency.p90:.3f}  p99 {latency.p99:.3f}  "
            f"max {latency.max:.3f} ms"
        )
    yield f"engine: {report.engine_cpu_s:.1f} CPU-seconds ({report.machine})"
