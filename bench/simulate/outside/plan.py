"""What one run of outside agents is, drawn from its seed. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from enum import StrEnum, auto
from pathlib import Path
from random import Random

from bench.engine.plan import END
from bench.simulate.schedule import Workload, schedule_of
from bench.simulate.workload import server_url, source_seed

TEMPLATE = (
    "{% for message in messages %}"
    "{{ message['role'] }}:{{ message['content'] }}" + END + "{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)
PATIENCE_S = 600.0
"""The engine's patience with agents of hosts that die, in seconds."""
HORIZON_S = 12.0
"""Faults come in so many virtual seconds from the first call on."""


class OutsideFault(StrEnum):
    """A fault of a run with outside agents."""

    ENGINE_KILL = auto()
    ENGINE_STOP = auto()
    HTTP_KILL = auto()
    AGENT_HOST_KILL = auto()
    AGENT_HOST_STOP = auto()
    SAMPLER_CUT = auto()
    ENGINE_LINKS_CUT = auto()


ON_HOSTS = (OutsideFault.AGENT_HOST_KILL, OutsideFault.AGENT_HOST_STOP)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutsidePlan:
    """Equal plans give equal histories."""

    seed: int
    workload: Workload
    workers: int
    """Agents at a time."""
    calls: int
    """Most calls of an agent."""
    halves: int
    """HTTP workers."""
    hosts: int
    """Agent hosts with `workers` agents each; 0 = agents start elsewhere."""
    cuts: float
    """Share of connections that are cut, between agent and ingress and between ingress and
    engine."""
    faults: tuple[tuple[float, OutsideFault], ...]
    """(virtual seconds after the first engine serves, fault)."""


def outside_plan(
    seed: int, kinds: tuple[OutsideFault, ...] = tuple(OutsideFault), most: int = 4
) -> OutsidePlan:
    """The plan of a seed, with 1 to `most` faults of these kinds."""
    dice = Random(f"outside {seed}")
    workload = replace(
        schedule_of(seed).workload,
        steps=dice.randint(1, 3),
        groups_per_step=dice.randint(1, 2),
        group_size=dice.randint(1, 2),
        tokens=(12, dice.choice((16, 60))),
        token_s=dice.choice((0.005, 0.02, 0.08)),
        places=4,
        calls=0,
        text_stops=False,
        dynamic=False,
        branching=False,
        suite=0,
        bad_rows=0.0,
        unfit_rows=0.0,
    )
    faults = [
        (round(dice.uniform(0.0, HORIZON_S), 4), dice.choice(kinds))
        for _ in range(dice.randint(1, most))
    ]
    hosted = any(fault in ON_HOSTS for _, fault in faults) or dice.random() < 0.2
    if hosted:  # each kill starts trajectories again: none may run out of attempts
        workload = replace(workload, patience_s=PATIENCE_S)
    return OutsidePlan(
        seed=seed,
        workload=workload,
        workers=dice.randint(1, 4),
        calls=dice.randint(2, 7),
        halves=dice.randint(1, 2),
        hosts=dice.randint(1, 2) if hosted else 0,
        cuts=dice.choice((0.0, 0.05, 0.05, 0.2)),
        faults=tuple(sorted(faults)),
    )


def outside_recipe(plan: OutsidePlan, *, policy: Path, folder: Path) -> str:
    """The TOML text."""
    work = plan.workload
    kind = 'kind = "command"\ncommand = ["agent"]' if plan.hosts else ""
    endpoints = json.dumps([server_url(number) for number in range(work.servers)])
    return f"""
[run]
name = "outside"
folder = "{folder}/run"
seed = {source_seed(work)}
steps = {work.steps}
groups_per_step = {work.groups_per_step}
group_size = {work.group_size}
max_staleness = {work.eta}
correction = "{"decoupled" if work.eta else "bypass"}"

[policy]
model = "{policy}"

[task]
source = "bench.simulate.workload:questions"
reward = "bench.simulate.workload:reward"
[task.agent]
{kind}
[task.limits]
action = {3 * work.tokens[1] + 40}
seconds = 3600.0

[sampler]
endpoints = {endpoints}
stream_interval = {work.interval}
pause = "{work.pause}"
timeout_s = 20.0
patience_s = {work.sampler_patience_s}

[engine]
max_concurrent = {work.places}
patience_s = {work.patience_s}
drain_s = 0.5
"""
