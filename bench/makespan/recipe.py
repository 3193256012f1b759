"""What the engine is given: numbered questions, a reward of 0, a recipe.

The log of the engine tells when admission began and what CPU time the start took:
the task source runs inside the engine.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

from bench.errors import BenchError
from bench.makespan.plan import Workload, prompt_text
from toolwright.types import Task, Trajectory

_ADMITTED = re.compile(r"^admission began at (\d+) ns after (\d+) ns of CPU$", re.MULTILINE)
SPARE = 2
"""Times the longest action and response of the plans: nothing here is to run into a limit."""
TOOL_LIMIT_S = 60.0


def questions(_seed: int) -> Iterator[Task]:
    """The recipe's task source. The second question is asked for when admission begins: a
    rehearsal at the start of the engine takes the first."""
    for number in count():
        if number == 1:
            print(
                f"admission began at {time.monotonic_ns()} ns after {time.process_time_ns()} ns "
                "of CPU",
                file=sys.stderr,
                flush=True,
            )
        yield Task(id=str(number), prompt=prompt_text(number))


def reward(_trajectory: Trajectory) -> float:
    """The recipe's reward."""
    return 0.0


def admission(log: str) -> tuple[int, int]:
    """(ns of the monotonic clock, ns of CPU time) from an engine's log."""
    found = _ADMITTED.search(log)
    if found is None:
        raise BenchError("the engine's log does not tell when admission began")
    return int(found[1]), int(found[2])


def recipe(
    workload: Workload,
    *,
    folder: Path,
    samplers: Sequence[int],
    tools: int,
    engine: int,
    metrics: int,
    places: int,
) -> str:
    """The TOML text; ports on loopback."""
    endpoints = json.dumps([f"http://127.0.0.1:{port}" for port in samplers])
    turns, action = workload.mix.turns[1], SPARE * int(workload.mix.action.most)
    return f"""
[run]
name = "makespan"
folder = "{folder}/run"
steps = 1
groups_per_step = {workload.trajectories}
group_size = 1
engine = "127.0.0.1:{engine}"

[policy]
model = "{folder}/policy"

[task]
source = "bench.makespan.recipe:questions"
reward = "bench.makespan.recipe:reward"
protocol_options = {{ observation = "[{{text}}]" }}
[task.limits]
turns = {turns}
action = {action}
response = {turns * (action + SPARE * int(workload.mix.answer.most))}

[sampler]
endpoints = {endpoints}
stream_interval = {workload.chunk}

[tools.sleep]
service = "127.0.0.1:{tools}"
run_limit_s = {TOOL_LIMIT_S}

[engine]
max_concurrent = {places}
metrics_port = {metrics}
"""
