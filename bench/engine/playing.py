"""Plays all plans once: with a loop alone, or with a real engine and its servers.

Owns the order in which processes start, and what is read from them while they run. All processes
share one machine; their CPU clocks separate their shares.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.engine.checking import TokenRecord, wrong_tokens
from bench.engine.consumer import leased
from bench.engine.figures import Span
from bench.engine.lag import LagReader, lag_ms
from bench.engine.loads import Beside
from bench.engine.plan import TrajectoryPlan, Work, ideal_makespan
from bench.engine.processes import sleeper
from bench.engine.processes.policy import write_policy
from bench.engine.processes.questions import admission, admitted, recipe
from bench.engine.processes.sampler import Stamp, begun, read_stamps
from bench.measuring.servers import listening, log_of, module, program, serving
from bench.measuring.spread import Spread
from bench.measuring.usage import cpu_seconds, thread_seconds
from console.errors import NotReady
from console.machine.memory import resident_peak
from console.machine.processes import Processes, Running
from console.machine.ready import free_ports
from toolwright import wire
from toolwright.common.v1.trajectory_pb2 import Trajectory as Lease
from toolwright.types import Status, ToolErrorKind, Trajectory

TIMEOUT_FACTOR, TIMEOUT_S = 8, 60
"""A run fails after so many times its ideal makespan and so many seconds."""
POLL_S = 0.1
ADMISSION_POLL_S = 0.02
ENOUGH = 0.99
"""Share of all places that ends the ramp-up: several samplers count in steps of a hundredth."""
PROGRESS_S = 5.0
MOST_THREADS = 8
STAMPS = "stamps-{}.json"

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRun:
    """One run over all plans."""

    figures: dict[str, Any]
    """The run's part of a row."""
    began_ns: int
    """Begin of admission on the monotonic clock."""
    stamps: Sequence[Stamp] = field(repr=False)
    tools: Mapping[tuple[int, int], Span] = field(repr=False)
    """Begin and end of the call of (trajectory, turn), in seconds of the monotonic clock."""


async def run_loop(
    kind: Beside, work: Work, places: int, folder: Path, processes: Processes
) -> PlanRun:
    """Plays the plans with a loop without tools and journal."""
    server, address = await _start_sampler(work, 0, folder, processes)
    before = cpu_seconds([server.pid])
    result = folder / "loop.json"
    files = str(folder / "work-0.json"), f"http://{address}", str(places), str(result)
    await processes.while_alive(
        processes.run(module(kind, "bench.engine.processes.bare", kind, *files))
    )
    found: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
    found["sampler_cpu_s"] = cpu_seconds([server.pid]) - before
    await processes.stop(server)
    return PlanRun(
        began_ns=found.pop("began_ns"),
        tools={(number, turn): (began, end) for number, turn, began, end in found.pop("tools")},
        stamps=read_stamps(folder / STAMPS.format(0)),
        figures=found,
    )


async def run_engine(
    work: Work,
    places: int,
    folder: Path,
    processes: Processes,
    *,
    samplers: Sequence[Work],
    say: Say,
    workers: int = 0,
) -> PlanRun:
    """Plays all plans with an engine. samplers: one sampler each, with the rate of that work.
    workers: of the engine.

    Raises ProcessFailed if a process does not start or ends by itself, and NotReady if the run
    takes much too long.
    """
    plans = work.plans()
    engine_port, metrics_port = free_ports(2)
    write_policy(folder / "policy")
    started = [
        await _start_sampler(one, index, folder, processes) for index, one in enumerate(samplers)
    ]
    playing = [running for running, _ in started]
    tools, tools_address = await serving(
        processes,
        program(
            f"tools-{folder.name}", "toolsvc", "serve", sleeper.__file__,
            "--listen", "127.0.0.1:0", "--max-sessions", str(2 * work.trajectories),
        ),
    )  # fmt: skip
    text = recipe(
        work,
        folder=folder,
        samplers=[address for _, address in started],
        tools=tools_address,
        engine=engine_port,
        metrics=metrics_port,
        places=places,
    )
    (folder / "recipe.toml").write_text(text, encoding="utf-8")
    pids = {"sampler": [one.pid for one in playing], "tools": [tools.pid]}
    before = {name: cpu_seconds(roots) for name, roots in pids.items()}
    bench_before = time.process_time()
    engine = await processes.start(
        program(
            f"engine-{folder.name}", "engine", "serve", str(folder / "recipe.toml"),
            "--workers", str(workers),
        )
    )  # fmt: skip
    await listening(processes, engine, [engine_port])
    lag = LagReader(metrics_port)
    limit = TIMEOUT_S + TIMEOUT_FACTOR * ideal_makespan(plans, places)
    start = asyncio.create_task(_cpu_at_admission(engine))
    try:
        leases, ramped_ns, ended_ns = await processes.while_alive(
            _consume(work, places, engine_port, playing, lag, limit, say)
        )
    except TimeoutError as error:
        raise NotReady(engine.failed(f"was not done after {limit:.0f} s")) from error
    finally:
        start.cancel()  # it has ended if the run has
    cpu, threads = cpu_seconds([engine.pid]), thread_seconds(engine.pid)
    began_ns, start_cpu_ns = admission(log_of(engine))
    start_cpu = start.result() if workers else start_cpu_ns / 1e9
    last = await lag.read()
    used = {name: cpu_seconds(roots) - before[name] for name, roots in pids.items()}
    used["bench"] = time.process_time() - bench_before
    peak = resident_peak(engine.pid)
    for one in (engine, tools, *playing):
        await processes.stop(one)
    stamps = [
        s for index in range(len(playing)) for s in read_stamps(folder / STAMPS.format(index))
    ]
    records = list(map(wire.trajectory_from_proto, leases))
    return PlanRun(
        began_ns=began_ns,
        stamps=stamps,
        tools=_tool_spans(records),
        figures={
            "makespan_s": (ended_ns - began_ns) / 1e9,
            "ramp_up_s": (ramped_ns - began_ns) / 1e9,
            "cpu_s": {
                "engine": cpu - start_cpu, "engine_start": start_cpu, **used,
            },
            "engine_threads_cpu_s": threads[:MOST_THREADS],
            "rss_mb": peak / 2**20,
            "lag_ms": lag_ms(lag.ramped, last),
            "busy_lag_ms": lag_ms(lag.ramped, lag.half_done),
            "repeated_turns": len(stamps) - sum(len(plan.turns) for plan in plans),
            **_checked(plans, records),
            **_calls(records),
        },
    )  # fmt: skip


async def _cpu_at_admission(engine: Running) -> float:
    """CPU seconds of an engine and its workers soon after the begin of admission."""
    while not admitted(log_of(engine)):  # noqa: ASYNC110
        await asyncio.sleep(ADMISSION_POLL_S)  # a log has no event
    return cpu_seconds([engine.pid])


async def _start_sampler(
    work: Work, index: int, folder: Path, processes: Processes
) -> tuple[Running, str]:
    file = folder / f"work-{index}.json"
    work.write(file)
    stamps = str(folder / STAMPS.format(index))
    name = f"sampler-{folder.name}-{index}"
    return await serving(
        processes, module(name, "bench.engine.processes.sampler", str(file), stamps)
    )


async def _consume(
    work: Work,
    places: int,
    port: int,
    samplers: Sequence[Running],
    lag: LagReader,
    limit: float,
    say: Say,
) -> tuple[list[Lease], int, int]:
    """(records, ns of the ramp-up's end, ns of the last record). Reads the lag at the end of the
    ramp-up, and when half of the trajectories are done."""

    async def ramp_up() -> int:
        while sum(begun(log_of(one)) for one in samplers) < ENOUGH * places:  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)  # a log has no event
        ramped_ns = time.monotonic_ns()
        lag.ramped = await lag.read()
        return ramped_ns

    records: list[Lease] = []
    said = time.monotonic()
    async with asyncio.timeout(limit), asyncio.TaskGroup() as group:
        ramp = group.create_task(ramp_up())
        async for record in leased(port, work.trajectories):
            records.append(record)
            if len(records) >= work.trajectories // 2 and lag.ramped and not lag.half_done:
                lag.half_done = await lag.read()
            if time.monotonic() - said > PROGRESS_S:
                said = time.monotonic()
                say(f"{len(records)} of {work.trajectories} trajectories are done")
        ended_ns = time.monotonic_ns()
    return records, ramp.result(), ended_ns


def _tool_spans(records: Sequence[Trajectory]) -> dict[tuple[int, int], Span]:
    return {
        (int(record.task.id), call.turn): (
            call.outcome.metrics["entered_s"],
            call.outcome.metrics["left_s"],
        )
        for record in records
        for call in record.calls
        if "entered_s" in call.outcome.metrics
    }


def _checked(plans: Sequence[TrajectoryPlan], records: Sequence[Trajectory]) -> dict[str, Any]:
    """Numbers of wrong tokens and of trajectories that were masked or cut. Every token of a plan
    without a record is wrong."""
    found = {int(record.task.id): TokenRecord.of(record) for record in records}
    return {
        "wrong_tokens": sum(
            wrong_tokens(plan, found.get(plan.number, TokenRecord())) for plan in plans
        ),
        "not_completed": sum(r.status is not Status.COMPLETED or r.masked for r in records),
    }


def _calls(records: Sequence[Trajectory]) -> dict[str, Any]:
    """Latencies of calls by the engine's own stamps, ms: from the read of the stop's bytes to the
    call on the gRPC channel, and from there to the result."""
    made = [c.timings for r in records for c in r.calls if c.timings.dispatched_ns]
    return {
        "call_ms": asdict(Spread.of([(t.dispatched_ns - t.stop_read_ns) / 1e6 for t in made])),
        "round_trip_ms": asdict(Spread.of([(t.result_ns - t.dispatched_ns) / 1e6 for t in made])),
        "call_errors": sum(
            c.outcome.error is not ToolErrorKind.NONE or not c.outcome.valid
            for r in records
            for c in r.calls
        ),
    }
