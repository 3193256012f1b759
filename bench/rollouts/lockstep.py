"""The batch-synchronous loop: a turn of everybody, then all tools, then the next turn.

    python -m bench.rollouts.lockstep WORKLOAD.json URL PLACES RESULT.json

The bare loop in another order. It has neither tools nor journal nor records, which is in its
favour: what it loses against the engine it loses by its barriers. Everybody has a place.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from typing import Any

import aiohttp

from bench.makespan.bare import BareLoop, main
from bench.makespan.plan import Plan, Workload
from bench.makespan.wrong import Said


def synchronous_makespan(workload: Workload, plans: Iterable[Plan]) -> float:
    """Seconds when nobody is late: of every turn the longest action and the longest call."""
    longest: dict[int, tuple[float, float]] = {}
    for plan in plans:
        for number, turn in enumerate(plan.turns):
            writes, waits = longest.get(number, (0.0, 0.0))
            seconds = workload.action_seconds(turn.action_tokens)
            longest[number] = (max(writes, seconds), max(waits, turn.tool_ms / 1000))
    return sum(writes + waits for writes, waits in longest.values())


class Lockstep(BareLoop):
    """Plays all plans turn by turn."""

    def __init__(self, workload: Workload, url: str, places: int) -> None:
        super().__init__(workload, url, places)
        self._tools: list[tuple[int, int, float, float]] = []

    async def play(self) -> dict[str, Any]:
        """Those of the bare loop, and `tools`: (trajectory, turn, began, ended), seconds of the
        monotonic clock."""
        figures = await super().play()
        return {**figures, "tools": self._tools}

    async def all_of(self, session: aiohttp.ClientSession, plans: Sequence[Plan]) -> list[Said]:
        said = {plan.number: Said.asked(plan) for plan in plans}
        for turn in range(max((len(plan.turns) for plan in plans), default=0)):
            writing = [plan for plan in plans if turn < len(plan.turns)]
            actions = await asyncio.gather(
                *(self.write(session, plan, turn, said[plan.number]) for plan in writing)
            )
            await asyncio.gather(
                *(
                    self._call(plan, turn, action, said[plan.number])
                    for plan, action in zip(writing, actions, strict=True)
                    if turn < len(plan.turns) - 1
                )
            )
        return list(said.values())

    async def _call(self, plan: Plan, turn: int, action: list[int], said: Said) -> None:
        began = time.monotonic()
        await self.answer(plan, turn, action, said)
        self._tools.append((plan.number, turn, began, time.monotonic()))


if __name__ == "__main__":
    main(Lockstep)
