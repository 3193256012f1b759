"""The agent host on the virtual clock: the real `AgentHost`, whose agents are conversations.

Invariants
- An agent outlives its dead host by `KEEPER_S` at most: its keeper ends it.
- A host that is stopped ends its agents before it ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

from agents.engine_link import EngineLink
from agents.host import AgentHost, Program
from agents.kinds.kind import Assigned, Kind, Played
from agents.outcomes import ending_of
from bench.simulate.virtual.loop import Owner, loop_here

KEEPER_S = 3.0
"""Longest time that a keeper takes to end its agent, in seconds."""
FAILS = 0.1
"""Share of agents that fail before their first call."""

Converse = Callable[[str, str, Random, Callable[[], bool]], Any]
"""(key, attempt, dice, whether its host lives): a whole conversation."""


class SimulatedHost:
    """One life of `agents serve`."""

    def __init__(
        self, name: str, life: int, channel: Any, converse: Converse, dice: Random, at_once: int
    ) -> None:
        self.owner = Owner(loop_here(), f"{name}, life {life}")
        self._dice = dice
        self._kind = _Conversations(converse, dice, lambda: self.owner.alive)
        programs = {"": Program(kind=self._kind, at_once=at_once)}
        host = AgentHost(EngineLink(channel, name, f"{life}"), programs, lambda: None)
        self.task = self.owner.spawn(host.run())

    @property
    def agents(self) -> int:
        """Number of living agents."""
        return len(self._kind.living)

    async def kill(self) -> list[str]:
        """SIGKILL. Returns tasks that do not end; its agents end later."""
        self.owner.die()
        left = await self.owner.buried()
        loop = loop_here()
        for agent in self._kind.living:
            after = self._dice.uniform(0.0, KEEPER_S)
            loop.call_later(after, _bury_soon, agent, context=loop.world)
        return left

    async def stop(self, longest_s: float) -> list[str]:
        """SIGTERM. Returns what it left, in words."""
        self.task.cancel()
        await asyncio.wait({self.task}, timeout=longest_s)
        left = [] if self.task.done() else [f"the stop takes more than {longest_s:g} s"]
        left += [f"an agent outlives the stop: {one.name}" for one in self._kind.living]
        return left + await self.kill()


class _Conversations(Kind):
    def __init__(self, converse: Converse, dice: Random, host_lives: Callable[[], bool]) -> None:
        self.living: dict[Owner, None] = {}
        self._converse = converse
        self._dice = dice
        self._host_lives = host_lives

    async def play(self, assigned: Assigned) -> Played:
        if self._dice.random() < FAILS:
            return Played(ending=ending_of(1, ()))
        dice = Random(self._dice.random())
        agent = Owner(loop_here(), f"agent of {assigned.attempt}")
        self.living[agent] = None
        work = self._converse(assigned.key, assigned.attempt, dice, self._host_lives)
        conversation = agent.spawn(work)
        try:
            await asyncio.wait({conversation})
        except asyncio.CancelledError:
            if self._host_lives():
                await asyncio.sleep(self._dice.uniform(0.0, KEEPER_S))
                await _bury(agent)
                del self.living[agent]
            raise
        del self.living[agent]
        conversation.result()
        return Played(ending=ending_of(0, ()))


def _bury_soon(agent: Owner) -> None:
    loop_here().create_task(_bury(agent))


async def _bury(agent: Owner) -> None:
    agent.die()
    await agent.buried()
