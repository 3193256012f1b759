"""The scripted sampler of this workload, in a process of its own.

    python -m bench.makespan.sampler WORKLOAD.json PORT STAMPS.json

It says what the plans say. Its log tells how many trajectories have begun (`began 12`); at SIGTERM
it writes when each request came in and when each stop went out, as rows of
[trajectory, turn, ns, ns].
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Iterable
from pathlib import Path

from bench.makespan.plan import END_ID, STOP_ID, Plan, Workload, number_of
from bench.scripted import ScriptedSampler, ScriptRequest, Timing, Token
from bench.scripted.script import default_logprob
from bench.scripted.types import GenerateRequest
from toolwright.process import loop

Stamp = tuple[int, int, int, int]
"""(trajectory, turn, its request was read at ns, its stop was written at ns)."""


class PlannedScript:
    """The replies of a workload, found by the ids of the request alone."""

    def __init__(self, plans: list[Plan]) -> None:
        self._plans = plans

    def __call__(self, request: ScriptRequest) -> Iterable[Token]:
        """ValueError for ids that no trajectory has at the beginning of an action or within."""
        ids = request.input_ids
        plan, turn = self._plans[number_of(ids)], ids.count(STOP_ID)
        begins = plan.length_before(turn)
        action = plan.action(turn, ids[:begins])
        said = len(ids) - begins
        if said < 0 or list(ids[begins:]) != action[:said]:
            raise ValueError(f"the ids of trajectory {plan.number}, turn {turn}, are not planned")
        tokens = [Token(i, default_logprob(i, place)) for place, i in enumerate(action)]
        return tokens[said:]


class Stamps:
    """When each reply was asked for and when its last event was written."""

    def __init__(self, trajectories: int) -> None:
        self.rows: list[Stamp] = []
        self._begun: set[int] = set()
        self._step = max(1, trajectories // 100)
        self._all = trajectories

    def asked(self, request: GenerateRequest) -> None:
        number = number_of(request.input_ids)
        if number not in self._begun:
            self._begun.add(number)
            begun = len(self._begun)
            if begun % self._step == 0 or begun == self._all:
                print(f"began {begun}", flush=True)

    def replied(self, request: GenerateRequest, read_ns: int, written_ns: int) -> None:
        ids = request.input_ids
        self.rows.append((number_of(ids), ids.count(STOP_ID), read_ns, written_ns))


def read_stamps(file: Path) -> list[Stamp]:
    """What a sampler wrote when it was stopped."""
    rows = json.loads(file.read_text(encoding="utf-8"))
    return [(number, turn, read, written) for number, turn, read, written in rows]


async def serve(workload: Workload, port: int) -> list[Stamp]:
    """Until SIGTERM; what came in and went out until then."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    stamps = Stamps(workload.trajectories)
    pace = workload.chunk / workload.rate
    sampler = ScriptedSampler(
        script=PlannedScript(workload.plans()),
        timing=Timing(
            first_token_delay=pace, tokens_per_second=workload.rate, tokens_per_chunk=workload.chunk
        ),
        eos=(END_ID,),
        port=port,
        record=0,
        watch=stamps,
    )
    async with sampler:
        await stop.wait()
    return stamps.rows


def main() -> None:
    file, port, stamps_file = sys.argv[1:]
    rows = loop.run(serve(Workload.read(Path(file)), int(port)))
    Path(stamps_file).write_text(json.dumps(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
