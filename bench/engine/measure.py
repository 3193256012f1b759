"""A row for each load: first the loop beside it, then the engine, on one machine."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bench.engine import figures
from bench.engine.figures import Bar
from bench.engine.loads import EngineLoad
from bench.engine.plan import Work, barrier_makespan, ideal_makespan
from bench.engine.playing import PlanRun, Say, run_engine, run_loop
from bench.measuring.report import Report
from bench.measuring.spread import Spread
from console.machine.processes import Processes
from engine.offline.reference import find

PACKAGES = ("toolwright", "aiohttp", "grpcio", "uvloop", "protobuf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One row to measure."""

    load: EngineLoad
    work: Work
    places: int
    """Trajectories in flight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The trajectories of one run, for the page."""

    title: str
    bars: Sequence[Bar]
    ideal_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRow:
    """One load. figures: the row of the JSON.

    - `ideal_s`, `makespan_s`: from the start of admission to the last record at the consumer.
    - `cpu_ms_per_trajectory`, `rss_mb`: the engine's. `cpu_s` is by process.
    - `lag_ms`: the event loop's lag after 99 % of the places started.
    - `busy_lag_ms`: the same lag until half of the trajectories are done.
    - `call_ms`: from the stop's read to the call on the channel.
    - `round_trip_ms`: from the call on the channel to its result.
    - `dispatch_ms`: from the sampler's stop to the tool.
    - `resume_ms`: from the tool's answer to the next request.
    - `place_ms`: from a trajectory's last stop to the first request of the next one in its place.
    - `wrong_tokens`, `not_completed`, `repeated_turns`, `call_errors`: numbers of faults.
    - `bare`, `barriers`: the same figures of the loops beside the engine.
    - `paper`: VerlTool's seconds.
    - `shares_s`: where a trajectory's seconds go.
    """

    figures: dict[str, Any]
    timelines: Sequence[Timeline]

    def to_json(self) -> dict[str, Any]:
        return self.figures


async def measure(
    jobs: Sequence[Job], *, slow_sampler: float | None, workers: Sequence[int] = (), say: Say
) -> Report[EngineRow]:
    """Measures one job after another. slow_sampler: also plays each job with a second sampler that
    is so many times slower. workers: also plays each job with so many workers.

    Raises ProcessFailed or NotReady if a process fails.
    """
    rows = []
    for job in jobs:
        with tempfile.TemporaryDirectory(prefix="bench-engine-") as name:
            folder = Path(name)
            async with Processes(folder / "logs") as processes:
                rows.append(await _row(job, slow_sampler, workers, folder, processes, say))
    return Report.of(rows, PACKAGES)


async def _row(
    job: Job,
    slow_sampler: float | None,
    workers: Sequence[int],
    folder: Path,
    processes: Processes,
    say: Say,
) -> EngineRow:
    load, work, places = job.load, job.work, job.places
    plans = work.plans()
    ideal = ideal_makespan(plans, places)
    name = f"{load.name}, {work.trajectories:,} trajectories"
    found: dict[str, Any] = {
        "load": load.name,
        "trajectories": work.trajectories,
        "chunk": work.chunk,
        "rate": work.rate,
        "seed": work.seed,
        "places": places,
        "tokens": sum(turn.action_tokens for plan in plans for turn in plan.turns),
        "calls": sum(len(plan.turns) - 1 for plan in plans),
        "bare": None,
        "barriers": None,
        "load_average_before": os.getloadavg()[0],
    }
    timelines = []

    def folder_of(kind: str) -> Path:
        (folder / kind).mkdir()
        return folder / kind

    if load.beside:
        best = barrier_makespan(work, plans) if load.beside == "barriers" else ideal
        say(f"{name}, loop ({load.beside}): about {best:.0f} s")
        loop = await run_loop(load.beside, work, places, folder_of(load.beside), processes)
        found[load.beside] = _compared(loop, best, work)
        seen = figures.bars(plans, work, loop.began_ns, loop.stamps, loop.tools)
        timelines.append(Timeline(title=f"Loop ({load.beside})", bars=seen, ideal_s=best))
    say(f"{name}, engine: about {ideal:.0f} s")
    run = await run_engine(work, places, folder_of("engine"), processes, samplers=[work], say=say)
    seen = figures.bars(plans, work, run.began_ns, run.stamps, run.tools)
    timelines.append(Timeline(title="Engine", bars=seen, ideal_s=ideal))
    found |= _compared(run, ideal, work)
    for key, delays in (
        ("dispatch_ms", [delay for bar in seen for delay in bar.dispatch]),
        ("resume_ms", [delay for bar in seen for delay in bar.resume]),
        ("place_ms", figures.place_waits(seen, places)),
    ):
        found[key] = asdict(Spread.of_seconds(delays)) if delays else None
    last = sorted(seen, key=lambda bar: bar.end)[-1:]
    for key, chosen in (("shares_s", seen), ("last_shares_s", last)):
        found[key] = figures.shares(chosen) if chosen else None
    if load.column:
        found |= _speed_up(found, load.column)
    if slow_sampler is not None:
        say(f"{name}, engine, second sampler {slow_sampler:g} times slower")
        slow = replace(work, rate=work.rate / slow_sampler)
        both = await run_engine(
            work, places, folder_of("slow"), processes, samplers=[work, slow], say=say
        )
        found["slow_sampler"] = {
            "times_slower": slow_sampler,
            "makespan_to_fast_alone": both.figures["makespan_s"] / run.figures["makespan_s"],
            "wrong_tokens": both.figures["wrong_tokens"],
        }
    for number in workers:
        say(f"{name}, engine with {number} workers: about {ideal:.0f} s")
        split = await run_engine(
            work, places, folder_of(f"workers-{number}"), processes,
            samplers=[work], say=say, workers=number,
        )  # fmt: skip
        found.setdefault("workers", []).append({"number": number, **_compared(split, ideal, work)})
    return EngineRow(figures=found, timelines=timelines)


def _compared(run: PlanRun, ideal: float, work: Work) -> dict[str, Any]:
    """The figures of a run beside the best possible makespan."""
    used = run.figures["cpu_s"]
    engine = used["engine"] if isinstance(used, dict) else used
    return {
        **run.figures,
        "ideal_s": ideal,
        "makespan_ratio": run.figures["makespan_s"] / ideal,
        "rollouts_per_s": work.trajectories / run.figures["makespan_s"],
        "cpu_ms_per_trajectory": 1e3 * engine / work.trajectories,
    }


def _speed_up(found: dict[str, Any], column: str) -> dict[str, Any]:
    """The engine's speed-up over the loop with barriers, the speed-up that the work allows, and
    the paper's seconds by system with its speed-up."""
    _, table = find("verltool:T2")
    paper = {row.system: row.cells[column] for row in table.rows}
    return {
        "speed_up": found["barriers"]["makespan_s"] / found["makespan_s"],
        "allowed_speed_up": found["barriers"]["ideal_s"] / found["ideal_s"],
        "paper": {**paper, "speed_up": paper["synchronous"] / paper["asynchronous"]},
    }
