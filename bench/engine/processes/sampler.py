"""The scripted sampler of the plans, in a process of its own.

    python -m bench.engine.processes.sampler WORK.json STAMPS.json

Its log holds its address and the number of trajectories that have begun (`began 12`). At SIGTERM it
writes the time of each request and of each stop, as rows of [trajectory, turn, ns, ns].
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
from collections.abc import Iterable
from pathlib import Path

from bench.engine.plan import END_ID, STOP_ID, TrajectoryPlan, Work, number_of
from bench.scripted import ScriptedSampler, ScriptRequest, Timing, Token
from bench.scripted.script import default_logprob
from bench.scripted.types import GenerateRequest
from toolwright.process import loop

Stamp = tuple[int, int, int, int]
"""(trajectory, turn, ns when the request was read, ns when the stop was written)."""
_BEGAN = re.compile(r"^began (\d+)$", re.MULTILINE)


class PlannedScript:
    """The replies of the plans. The ids of a request alone determine its reply."""

    def __init__(self, plans: list[TrajectoryPlan]) -> None:
        self._plans = plans

    def __call__(self, request: ScriptRequest) -> Iterable[Token]:
        """Raises ValueError unless some trajectory has these ids at the beginning of an action or
        within it."""
        ids = request.input_ids
        plan, turn = self._plans[number_of(ids)], ids.count(STOP_ID)
        begins = plan.length_before(turn)
        action = plan.action(turn, ids[:begins])
        done = len(ids) - begins
        if done < 0 or list(ids[begins:]) != action[:done]:
            raise ValueError(f"the ids of trajectory {plan.number}, turn {turn}, are not planned")
        tokens = [Token(i, default_logprob(i, place)) for place, i in enumerate(action)]
        return tokens[done:]


class Stamps:
    """Times at which each reply was requested and its last event was written."""

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


def begun(log: str) -> int:
    """Number of trajectories that have begun, from the log of a sampler."""
    found = _BEGAN.findall(log)
    return int(found[-1]) if found else 0


def read_stamps(file: Path) -> list[Stamp]:
    """The stamps of a sampler that has ended."""
    rows = json.loads(file.read_text(encoding="utf-8"))
    return [(number, turn, read, written) for number, turn, read, written in rows]


async def serve(work: Work) -> list[Stamp]:
    """Serves until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    stamps = Stamps(work.trajectories)
    sampler = ScriptedSampler(
        script=PlannedScript(work.plans()),
        timing=Timing(
            first_token_delay=work.chunk / work.rate,
            tokens_per_second=work.rate,
            tokens_per_chunk=work.chunk,
            jitter=work.jitter,
        ),
        eos=(END_ID,),
        record=0,
        watch=stamps,
    )
    async with sampler:
        print(f"serving plans on {sampler.url.removeprefix('http://')}", flush=True)
        await stop.wait()
    return stamps.rows


def main() -> None:
    file, stamps_file = sys.argv[1:]
    rows = loop.run(serve(Work.read(Path(file))))
    Path(stamps_file).write_text(json.dumps(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
