"""A row for each number of trajectories: the bare loop first, then the engine, on one machine."""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from bench.makespan import figures
from bench.makespan.figures import Bar, Shares
from bench.makespan.plan import Plan, Workload, ideal_makespan
from bench.makespan.play import EngineRun, Say, run_bare, run_engine
from bench.makespan.wrong import Said, wrong_tokens
from console.machine.processes import Processes
from toolwright import wire
from toolwright.types import Status, Trajectory

MOST_THREADS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One number of trajectories. `figures`: what the report's JSON says; `bars`: the timeline."""

    figures: dict[str, Any]
    bars: tuple[Bar, ...]
    ideal_s: float
    shares: Shares | None
    last_shares: Shares | None
    """Of the trajectory that ended last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    rows: tuple[Row, ...]
    machine: str
    versions: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        return {
            "rows": [row.figures for row in self.rows],
            "machine": self.machine,
            "versions": self.versions,
        }


async def measure(
    workloads: Sequence[Workload],
    *,
    places: int | None,
    slow_sampler: float | None,
    say: Say,
) -> Report:
    """`places`: trajectories in flight, None = all at once. `slow_sampler`: also with a second
    sampler that is so many times slower.

    ProcessFailed or NotReady when a process does not do its part.
    """
    rows = []
    for workload in workloads:
        with tempfile.TemporaryDirectory(prefix="makespan-") as name:
            folder = Path(name)
            async with Processes(folder / "logs") as processes:
                rows.append(await _row(workload, places, slow_sampler, folder, processes, say))
    return Report(
        rows=tuple(rows),
        machine=f"{platform.machine()}, {psutil.cpu_count()} cores",
        versions={name: version(name) for name in ("aiohttp", "grpcio", "uvloop", "protobuf")},
    )


async def _row(
    workload: Workload,
    places: int | None,
    slow_sampler: float | None,
    folder: Path,
    processes: Processes,
    say: Say,
) -> Row:
    plans = workload.plans()
    for kind in ("bare", "engine", "slow"):
        (folder / kind).mkdir()
    at_once = min(places or workload.trajectories, workload.trajectories)
    ideal = ideal_makespan(plans, at_once)
    many = f"{workload.trajectories:,} trajectories"
    load = os.getloadavg()[0]
    say(f"{many}, bare loop: about {ideal:.0f} s")
    bare = await run_bare(workload, at_once, folder / "bare", processes)
    say(f"{many}, engine: about {ideal:.0f} s")
    run = await run_engine(
        workload, at_once, folder / "engine", processes, samplers=[workload], say=say
    )
    records = records_of(run)
    seen = figures.bars(plans, workload, run.began_ns, run.stamps, tool_spans(records))
    found = {
        **_promised(workload, ideal, bare, run, wrong_in(plans, records)),
        **_details(workload, plans, at_once, run, records, seen),
    }
    found["ideal_s"] = ideal
    found["load_average_before"] = load
    if slow_sampler is not None:
        say(f"{many}, engine, second sampler {slow_sampler:g} times slower")
        slow = replace(workload, rate=workload.rate / slow_sampler)
        both = await run_engine(
            workload, at_once, folder / "slow", processes, samplers=[workload, slow], say=say
        )
        found["slow_sampler"] = {
            "times_slower": slow_sampler,
            "makespan_to_fast_alone": both.makespan_s / run.makespan_s,
            "wrong_tokens": wrong_in(plans, records_of(both)),
        }
    last = max(seen, key=lambda bar: bar.end, default=None)
    return Row(
        figures=found,
        bars=tuple(seen),
        ideal_s=ideal,
        shares=figures.shares(seen) if seen else None,
        last_shares=figures.shares([last]) if last else None,
    )


def _promised(
    workload: Workload, ideal: float, bare: dict[str, Any], run: EngineRun, wrong: int
) -> dict[str, Any]:
    """The keys that every reader of the JSON may count on."""
    number = workload.trajectories
    return {
        "trajectories": number,
        "chunk": workload.chunk,
        "makespan_ratio": run.makespan_s / ideal,
        "cpu_ms_per_trajectory": 1e3 * run.cpu_s / number,
        "rss_mb": run.rss_mb,
        "lag_ms": figures.lag_ms(run.lag_counts),
        "wrong_tokens": wrong,
        "bare": {
            "makespan_ratio": bare["makespan_s"] / ideal,
            "cpu_ms_per_trajectory": 1e3 * bare["cpu_s"] / number,
            "rss_mb": bare["rss_mb"],
            "lag_ms": bare["lag_ms"],
            "wrong_tokens": bare["wrong_tokens"],
            "sampler_cpu_s": bare["sampler_cpu_s"],
        },
    }


def _details(
    workload: Workload,
    plans: Sequence[Plan],
    places: int,
    run: EngineRun,
    records: Sequence[Trajectory],
    seen: Sequence[Bar],
) -> dict[str, Any]:
    return {
        "seed": workload.seed,
        "rate": workload.rate,
        "places": places,
        "makespan_s": run.makespan_s,
        "tokens": sum(turn.action_tokens for plan in plans for turn in plan.turns),
        "calls": sum(len(plan.turns) - 1 for plan in plans),
        "not_completed": sum(t.status is not Status.COMPLETED or t.masked for t in records),
        "repeated_turns": len(run.stamps) - sum(len(plan.turns) for plan in plans),
        "dispatch_ms": figures.percentiles([s for bar in seen for s in bar.dispatch]),
        "resume_ms": figures.percentiles([s for bar in seen for s in bar.resume]),
        "place_ms": figures.percentiles(figures.place_waits(seen, places)),
        "shares_s": asdict(figures.shares(seen)) if seen else None,
        "busy_lag_ms": figures.lag_ms(run.busy_lag_counts),
        "ramp_up_s": run.ramp_up_s,
        "cpu_s": {
            "engine": run.cpu_s,
            "engine_start": run.start_cpu_s,
            "sampler": run.sampler_cpu_s,
            "tools": run.tools_cpu_s,
            "bench": run.bench_cpu_s,
        },
        "engine_threads_cpu_s": run.threads_cpu_s[:MOST_THREADS],
    }


def records_of(run: EngineRun) -> list[Trajectory]:
    """What the consumer leased."""
    return [wire.trajectory_from_proto(record) for record in run.records]


def wrong_in(plans: Sequence[Plan], records: Sequence[Trajectory]) -> int:
    """Wrong tokens over all plans: of one without a record every token is wrong."""
    by_number = {int(record.task.id): Said.of(record) for record in records}
    return sum(wrong_tokens(plan, by_number.get(plan.number, Said())) for plan in plans)


def tool_spans(records: Sequence[Trajectory]) -> dict[tuple[int, int], figures.Span]:
    """When the call of (trajectory, turn) came in and left, by the tool's own stamps."""
    return {
        (int(record.task.id), call.turn): (
            call.outcome.metrics["entered_s"],
            call.outcome.metrics["left_s"],
        )
        for record in records
        for call in record.calls
        if "entered_s" in call.outcome.metrics
    }
