"""A row for each scenario: first the batch-synchronous loop, then the engine, on one machine."""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from bench.makespan import figures
from bench.makespan.figures import Bar
from bench.makespan.measure import records_of, tool_spans, wrong_in
from bench.makespan.plan import Plan, Workload, ideal_makespan
from bench.makespan.play import Say, run_bare, run_engine
from bench.rollouts import lockstep
from bench.rollouts.scenarios import Scenario
from console.machine.processes import Processes
from engine.offline.reference import find
from toolwright.types import Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """One way of playing the work. allowed_s: the makespan when nobody is late. not_completed:
    trajectories that were masked or cut. load: of the machine before it, its load average of the
    last minute."""

    makespan_s: float
    allowed_s: float
    wrong_tokens: int
    not_completed: int
    load: float
    bars: Sequence[Bar] = field(repr=False)

    @property
    def to_allowed(self) -> float:
        return self.makespan_s / self.allowed_s

    def to_json(self) -> dict[str, Any]:
        return {
            "makespan_s": self.makespan_s,
            "allowed_s": self.allowed_s,
            "to_allowed": self.to_allowed,
            "wrong_tokens": self.wrong_tokens,
            "not_completed": self.not_completed,
            "load_average_before": self.load,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One scenario. paper: seconds by system, "synchronous" and "asynchronous"."""

    scenario: str
    trajectories: int
    pace: float
    seed: int
    tokens: int
    calls: int
    synchronous: Loop
    asynchronous: Loop
    paper: Mapping[str, float]

    @property
    def speed_up(self) -> float:
        return self.synchronous.makespan_s / self.asynchronous.makespan_s

    @property
    def allowed(self) -> float:
        """The speed-up when nobody is late."""
        return self.synchronous.allowed_s / self.asynchronous.allowed_s

    @property
    def papers(self) -> float:
        """The paper's speed-up."""
        return self.paper["synchronous"] / self.paper["asynchronous"]

    def to_json(self) -> dict[str, Any]:
        own = ("scenario", "trajectories", "pace", "seed", "tokens", "calls")
        return {
            **{name: getattr(self, name) for name in own},
            "synchronous": self.synchronous.to_json(),
            "asynchronous": self.asynchronous.to_json(),
            "speed_up": self.speed_up,
            "allowed_speed_up": self.allowed,
            "paper": {**self.paper, "speed_up": self.papers},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    rows: tuple[Row, ...]
    machine: str
    versions: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        return {
            "rows": [row.to_json() for row in self.rows],
            "machine": self.machine,
            "versions": self.versions,
        }


async def measure(
    scenarios: Sequence[Scenario], *, trajectories: int, pace: float, seed: int, say: Say
) -> Report:
    """ProcessFailed or NotReady when a process does not do its part."""
    rows = []
    for scenario in scenarios:
        workload = scenario.workload(trajectories=trajectories, pace=pace, seed=seed)
        with tempfile.TemporaryDirectory(prefix="rollouts-") as name:
            folder = Path(name)
            async with Processes(folder / "logs") as processes:
                rows.append(await _row(scenario, workload, pace, folder, processes, say))
    return Report(
        rows=tuple(rows),
        machine=f"{platform.machine()}, {psutil.cpu_count()} cores",
        versions={name: version(name) for name in ("aiohttp", "grpcio", "uvloop", "protobuf")},
    )


async def _row(
    scenario: Scenario,
    workload: Workload,
    pace: float,
    folder: Path,
    processes: Processes,
    say: Say,
) -> Row:
    plans = workload.plans()
    for kind in ("lockstep", "engine"):
        (folder / kind).mkdir()
    return Row(
        scenario=scenario.name,
        trajectories=workload.trajectories,
        pace=pace,
        seed=workload.seed,
        tokens=sum(turn.action_tokens for plan in plans for turn in plan.turns),
        calls=sum(len(plan.turns) - 1 for plan in plans),
        synchronous=await _lockstep(
            scenario.name, workload, plans, folder / "lockstep", processes, say
        ),
        asynchronous=await _engine(
            scenario.name, workload, plans, folder / "engine", processes, say
        ),
        paper=_paper(scenario),
    )


async def _lockstep(
    name: str,
    workload: Workload,
    plans: Sequence[Plan],
    folder: Path,
    processes: Processes,
    say: Say,
) -> Loop:
    allowed = lockstep.synchronous_makespan(workload, plans)
    load = os.getloadavg()[0]
    say(f"{name}, batch-synchronous: about {allowed:.0f} s")
    found = await run_bare(
        workload, workload.trajectories, folder, processes, program=lockstep.__name__
    )
    tools = {(number, turn): (began, ended) for number, turn, began, ended in found["tools"]}
    return Loop(
        makespan_s=found["makespan_s"],
        allowed_s=allowed,
        wrong_tokens=found["wrong_tokens"],
        not_completed=0,  # nobody has a limit that a plan could run into
        load=load,
        bars=figures.bars(plans, workload, found["began_ns"], found["stamps"], tools),
    )


async def _engine(
    name: str,
    workload: Workload,
    plans: Sequence[Plan],
    folder: Path,
    processes: Processes,
    say: Say,
) -> Loop:
    allowed = ideal_makespan(plans, workload.trajectories)
    load = os.getloadavg()[0]
    say(f"{name}, engine: about {allowed:.0f} s")
    run = await run_engine(
        workload, workload.trajectories, folder, processes, samplers=[workload], say=say
    )
    records = records_of(run)
    return Loop(
        makespan_s=run.makespan_s,
        allowed_s=allowed,
        wrong_tokens=wrong_in(plans, records),
        not_completed=sum(r.status is not Status.COMPLETED or r.masked for r in records),
        load=load,
        bars=figures.bars(plans, workload, run.began_ns, run.stamps, tool_spans(records)),
    )


def _paper(scenario: Scenario) -> dict[str, float]:
    _, table = find("verltool:T2")
    return {row.system: row.cells[scenario.set] for row in table.rows}
