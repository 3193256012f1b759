"""Loops that play the plans against the same sampler, without tools, journal and records.

    python -m bench.engine.processes.bare LOOP WORK.json URL PLACES RESULT.json

LOOP is `bare` or `barriers`. Each is an aiohttp client that streams, reads ids and log-probs, and
sleeps in place of the tool. `bare` shows the least that an asyncio engine costs on this machine.
`barriers` loses only by its barriers: it has neither tools nor journal. Tokens are checked after
the clock has stopped.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp
import orjson
from prometheus_client import CollectorRegistry

from bench.engine.checking import TokenRecord, wrong_tokens
from bench.engine.plan import END_ID, STOP_ID, TrajectoryPlan, Work
from engine.serving.telemetry.lag import LoopLag
from toolwright.process import loop

MOST_TOKENS = 8192
"""Limit of an action; no plan reaches it."""
_DONE = b"data: [DONE]"


class BareLoop:
    """Plays all plans, at most `places` at once, each at its own pace."""

    def __init__(self, work: Work, url: str, places: int) -> None:
        self._work = work
        self._url = url + "/generate"
        self._places = places
        self._free = asyncio.Semaphore(places)
        self._lag = LoopLag(CollectorRegistry())
        self._begun = 0
        self._tools: list[tuple[int, int, float, float]] = []

    async def play(self) -> dict[str, Any]:
        """Figures of one run. `tools` holds (trajectory, turn, begin, end) in seconds of the
        monotonic clock."""
        plans = self._work.plans()
        limit = aiohttp.ClientTimeout(total=None)
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, timeout=limit) as session:
            lag = asyncio.create_task(self._lag.run())
            began, cpu = time.monotonic(), time.process_time()
            records = await self.all_of(session, plans)
            seconds, cpu = time.monotonic() - began, time.process_time() - cpu
            lag.cancel()
        return {
            "began_ns": round(1e9 * began),
            "makespan_s": seconds,
            "cpu_s": cpu,
            "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            "lag_ms": {name: 1e3 * getattr(self._lag, name) for name in ("p50", "p99", "worst")},
            "wrong_tokens": sum(map(wrong_tokens, plans, records)),
            "tools": self._tools,
        }

    async def all_of(
        self, session: aiohttp.ClientSession, plans: Sequence[TrajectoryPlan]
    ) -> list[TokenRecord]:
        """The records, in the order of the plans."""
        return await asyncio.gather(*(self._trajectory(session, plan) for plan in plans))

    async def _trajectory(
        self, session: aiohttp.ClientSession, plan: TrajectoryPlan
    ) -> TokenRecord:
        async with self._free:
            self._begun += 1
            if self._begun == self._places:
                self._lag.reset()
            record = TokenRecord.of_prompt(plan)
            for turn in range(len(plan.turns)):
                await self.turn(session, plan, turn, record)
                await self.call(plan, turn, record)
            return record

    async def turn(
        self, session: aiohttp.ClientSession, plan: TrajectoryPlan, turn: int, record: TokenRecord
    ) -> None:
        """Samples the action of a turn and appends it to the record."""
        body = {
            "rid": f"{plan.number}.{turn}.",
            "input_ids": record.ids,
            "stream": True,
            "return_logprob": True,
            "sampling_params": {
                "max_new_tokens": MOST_TOKENS,
                "stop_token_ids": [STOP_ID, END_ID],
                "stream_interval": self._work.chunk,
            },
        }
        ids: list[int] = []
        logprobs: list[float] = []
        rest = b""
        headers = {"Content-Type": "application/json"}
        async with session.post(self._url, data=orjson.dumps(body), headers=headers) as answer:
            async for data in answer.content.iter_any():
                *events, rest = (rest + data).split(b"\n\n")
                for event in events:
                    if event != _DONE:
                        chunk = orjson.loads(event[6:])
                        ids += chunk["output_ids"]
                        pairs = chunk["meta_info"]["output_token_logprobs"]
                        logprobs += [pair[0] for pair in pairs]
        record.add(ids, True, logprobs)

    async def call(self, plan: TrajectoryPlan, turn: int, record: TokenRecord) -> None:
        """Sleeps for the tool of a turn and appends its answer; the last turn has no call."""
        if turn == len(plan.turns) - 1:
            return
        began = time.monotonic()
        answer = plan.answer(record.ids[plan.length_before(turn) :])
        await asyncio.sleep(plan.turns[turn].tool_ms / 1000)
        record.add(answer, False, [0.0] * len(answer))
        self._tools.append((plan.number, turn, began, time.monotonic()))


class LoopWithBarriers(BareLoop):
    """Plays all plans turn by turn: all actions, then all tools. Every trajectory has a place."""

    async def all_of(
        self, session: aiohttp.ClientSession, plans: Sequence[TrajectoryPlan]
    ) -> list[TokenRecord]:
        records = [TokenRecord.of_prompt(plan) for plan in plans]
        pairs = list(zip(plans, records, strict=True))
        for turn in range(max((len(plan.turns) for plan in plans), default=0)):
            playing = [(plan, record) for plan, record in pairs if turn < len(plan.turns)]
            await asyncio.gather(
                *(self.turn(session, plan, turn, record) for plan, record in playing)
            )
            await asyncio.gather(*(self.call(plan, turn, record) for plan, record in playing))
        return records


LOOPS = {"bare": BareLoop, "barriers": LoopWithBarriers}


def main() -> None:
    kind, file, url, places, result = sys.argv[1:]

    async def play() -> dict[str, Any]:
        return await LOOPS[kind](Work.read(Path(file)), url, int(places)).play()

    Path(result).write_text(json.dumps(loop.run(play())), encoding="utf-8")


if __name__ == "__main__":
    main()
