"""The bare loop: the same plans against the same sampler, without tools, journal and records.

    python -m bench.makespan.bare WORKLOAD.json URL PLACES RESULT.json

An aiohttp client that streams, reads ids and log-probs, and sleeps in place of the tool: what any
asyncio engine of this machine pays at the least. Tokens are checked after the clock has stopped.
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

from bench.makespan.plan import END_ID, STOP_ID, Plan, Workload
from bench.makespan.wrong import Said, wrong_tokens
from engine.serving.telemetry.lag import LoopLag
from toolwright.process import loop

MOST_TOKENS = 8192
"""Of an action: above what any plan has."""
_DONE = b"data: [DONE]"


class BareLoop:
    """Plays all plans, at most `places` at once; each goes on as soon as it can."""

    def __init__(self, workload: Workload, url: str, places: int) -> None:
        self._workload = workload
        self._url = url + "/generate"
        self._places = places
        self._free = asyncio.Semaphore(places)
        self._lag = LoopLag(CollectorRegistry())
        self._begun = 0

    async def play(self) -> dict[str, Any]:
        """The figures of one run."""
        plans = self._workload.plans()
        limit = aiohttp.ClientTimeout(total=None)
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, timeout=limit) as session:
            lag = asyncio.create_task(self._lag.run())
            began, cpu = time.monotonic(), time.process_time()
            said = await self.all_of(session, plans)
            seconds, cpu = time.monotonic() - began, time.process_time() - cpu
            lag.cancel()
        return {
            "began_ns": round(1e9 * began),
            "makespan_s": seconds,
            "cpu_s": cpu,
            "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            "lag_ms": {
                "p50": 1e3 * self._lag.p50,
                "p99": 1e3 * self._lag.p99,
                "worst": 1e3 * self._lag.worst,
            },
            "wrong_tokens": sum(map(wrong_tokens, plans, said)),
        }

    async def all_of(self, session: aiohttp.ClientSession, plans: Sequence[Plan]) -> list[Said]:
        """What was said of each plan, in the order of the plans."""
        return await asyncio.gather(*(self._trajectory(session, plan) for plan in plans))

    async def _trajectory(self, session: aiohttp.ClientSession, plan: Plan) -> Said:
        async with self._free:
            self._begun += 1
            if self._begun == self._places:
                self._lag.reset()
            said = Said.asked(plan)
            for turn in range(len(plan.turns)):
                action = await self.write(session, plan, turn, said)
                if turn < len(plan.turns) - 1:
                    await self.answer(plan, turn, action, said)
            return said

    async def write(
        self, session: aiohttp.ClientSession, plan: Plan, turn: int, said: Said
    ) -> list[int]:
        """The action of a turn, from the sampler; it is said then."""
        action, logprobs = await self._action(session, f"{plan.number}.{turn}", said.ids)
        said.add(action, True, logprobs)
        return action

    async def answer(self, plan: Plan, turn: int, action: list[int], said: Said) -> None:
        """The tool's time, and what it says then."""
        answer = plan.answer(action)
        await asyncio.sleep(plan.turns[turn].tool_ms / 1000)
        said.add(answer, False, [0.0] * len(answer))

    async def _action(
        self, session: aiohttp.ClientSession, rid: str, before: list[int]
    ) -> tuple[list[int], list[float]]:
        body = {
            "rid": f"{rid}.",
            "input_ids": before,
            "stream": True,
            "return_logprob": True,
            "sampling_params": {
                "max_new_tokens": MOST_TOKENS,
                "stop_token_ids": [STOP_ID, END_ID],
                "stream_interval": self._workload.chunk,
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
        return ids, logprobs


def main(kind: type[BareLoop] = BareLoop) -> None:
    file, url, places, result = sys.argv[1:]

    async def play() -> dict[str, Any]:
        return await kind(Workload.read(Path(file)), url, int(places)).play()

    Path(result).write_text(json.dumps(loop.run(play())), encoding="utf-8")


if __name__ == "__main__":
    main()
