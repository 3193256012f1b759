"""The engine's task: numbered questions, a reward of 0, and the recipe that names both.

The task source runs inside the engine. So the engine's log holds the begin of admission and the CPU
time of the start.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

from bench.engine.plan import Work, prompt_text
from bench.errors import BenchError
from toolwright.types import Task, Trajectory

_ADMITTED = re.compile(r"^admission began at (\d+) ns after (\d+) ns of CPU$", re.MULTILINE)
SPARE = 2
"""Factor of the limits to the longest action and answer: no trajectory may reach a limit."""
TOOL_LIMIT_S = 60.0


def questions(_seed: int) -> Iterator[Task]:
    """The recipe's task source. A rehearsal at the start of the engine takes the first question;
    admission begins with the second."""
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
        raise BenchError("the engine's log does not contain the begin of admission")
    return int(found[1]), int(found[2])


def admitted(log: str) -> bool:
    """Whether an engine with this log has begun to admit."""
    return _ADMITTED.search(log) is not None


def recipe(
    work: Work,
    *,
    folder: Path,
    samplers: Sequence[str],
    tools: str,
    engine: int,
    metrics: int,
    places: int,
) -> str:
    """The TOML text. samplers, tools: addresses. engine, metrics: ports of loopback."""
    endpoints = json.dumps([f"http://{address}" for address in samplers])
    turns, action = work.mix.turns[1], SPARE * int(work.mix.action.most)
    return f"""
[run]
name = "bench"
folder = "{folder}/run"
steps = 1
groups_per_step = {work.trajectories}
group_size = 1
engine = "127.0.0.1:{engine}"

[policy]
model = "{folder}/policy"

[task]
source = "bench.engine.processes.questions:questions"
reward = "bench.engine.processes.questions:reward"
protocol_options = {{ observation = "[{{text}}]" }}
[task.limits]
turns = {turns}
action = {action}
response = {turns * (action + SPARE * int(work.mix.answer.most))}

[sampler]
endpoints = {endpoints}
stream_interval = {work.chunk}

[tools.sleep]
service = "{tools}"
run_limit_s = {TOOL_LIMIT_S}

[engine]
max_concurrent = {places}
metrics_port = {metrics}
"""
