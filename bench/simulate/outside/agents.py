"""Outside agents with an SDK's habits: histories, forks, edits, parallel calls, retries.

Invariant: the last message of each call names it (`#7;`), and no other call has its number. So a
record tells which call a completion belongs to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from bench.simulate.outside.http_half import AgentRequest, HttpHalf
from bench.simulate.outside.plan import OutsidePlan
from ingress.errors import ApiError
from toolwright import wire
from toolwright.ingress.v1 import ingress_pb2 as pb
from toolwright.ingress.v1 import ingress_pb2_grpc
from toolwright.rpc.channel import call, may_retry
from toolwright.rpc.errors import ServiceError, TransportError

AGAIN_S = 0.5
"""Pause before a retry, in seconds."""
MOST_TRIES = 200

Talk = list[dict[str, str]]


@dataclass(slots=True, kw_only=True)
class LoggedCall:
    """What an agent knows of one call."""

    attempt: str
    samples: int
    """Most completions that a record may have of it."""
    delivered: list[str] = field(default_factory=list)
    """Texts of the completions that the agent got."""
    aside: bool = False


class Agents:
    """All agents of a run. `run` one worker after another, until it is cancelled."""

    def __init__(self, plan: OutsidePlan, channel: Any, half: Callable[[], HttpHalf]) -> None:
        self.calls: dict[int, LoggedCall] = {}
        self.errors: list[str] = []
        """Errors that no agent should see."""
        self.ended: set[str] = set()
        """Attempts whose agents came to their end."""
        self._plan = plan
        self._stub: Any = ingress_pb2_grpc.IngressServiceStub(channel)
        self._half = half

    async def work(self, number: int) -> None:
        """Takes one trajectory after another."""
        dice = Random(f"agent {number} {self._plan.seed}")
        taken = 0
        while True:
            request = pb.TakeRequest(worker=f"w{number}", number=taken, wait=wire.duration(5.0))
            found = await self._until_answered(self._stub.Take, request)
            if found.key:
                taken += 1
                await self.converse(found.key, found.attempt, dice)
                ended = pb.EndedRequest(key=found.key, outcome=pb.OUTCOME_DONE)
                await self._until_answered(self._stub.Ended, ended)

    async def converse(
        self, key: str, attempt: str, dice: Random, lives: Callable[[], bool] = lambda: True
    ) -> None:
        """All calls of one agent. lives: whether its host does; without it calls may fail."""
        agent = _Agent(self, key, attempt, dice, lives)
        talks: list[Talk] = [[{"role": "system", "content": "s"}]]
        for _ in range(dice.randint(1, self._plan.calls)):
            base = talks[-1] if dice.random() < 0.7 else dice.choice(talks)
            if len(base) > 1 and dice.random() < 0.15:
                base = [dict(message) for message in base]
                dice.choice(base[1:])["content"] += " edited"
            count = 1 if dice.random() < 0.8 else dice.randint(2, 4)
            found = await asyncio.gather(*(agent.call(base) for _ in range(count)))
            talks += [talk for talk in found if talk is not None]
        self.ended.add(attempt)

    async def _until_answered(self, method: Any, request: Any) -> Any:
        while True:
            try:
                return await call(method, request, timeout=20.0)
            except (ServiceError, TransportError) as error:
                if not may_retry(error):
                    raise
            await asyncio.sleep(AGAIN_S)

    def connection(self, key: str, body: Any, dice: Random, *, retry: bool) -> AgentRequest:
        return AgentRequest(self._half(), dice, body, key, retry=retry, cuts=self._plan.cuts)

    def next_number(self, logged: LoggedCall) -> int:
        number = len(self.calls)
        self.calls[number] = logged
        return number


class _Agent:
    """One conversation. marks: its retries are marked."""

    def __init__(
        self, agents: Agents, key: str, attempt: str, dice: Random, lives: Callable[[], bool]
    ) -> None:
        self._agents = agents
        self._key = key
        self._attempt = attempt
        self._dice = dice
        self._lives = lives
        self._marks = dice.random() < 0.8

    async def call(self, base: Talk) -> Talk | None:
        """The conversation after one call; None if the agent gave up."""
        dice = self._dice
        n = dice.choice((1, 1, 1, 2))
        logged = LoggedCall(attempt=self._attempt, samples=n, aside=dice.random() < 0.1)
        number = self._agents.next_number(logged)
        talk = [*base, {"role": "user", "content": f"#{number};"}]
        body = {"messages": talk, "n": n, "stream": dice.random() < 0.5}
        body["model"] = "aside" if logged.aside else "policy"
        for tries in range(MOST_TRIES):
            retry = self._marks and tries > 0
            if tries and not retry:
                logged.samples += n
            connection = self._agents.connection(self._key, body, dice, retry=retry)
            try:
                end = await connection.end()
            except ConnectionError:
                pass
            except asyncio.CancelledError:  # the agent is ended, and with it its connection
                connection.cut()
                raise
            except ApiError as error:
                if not self._lives():
                    return None
                if not (connection.began and error.status == 500) and error.status != 429:
                    self._agents.errors.append(f"call {number}: {error.status} {error}")
                    return None
                if error.status == 500:
                    logged.samples += n  # the client has seen a part of another sample
            else:
                texts = [one.message.text for one in end.completions]
                logged.delivered = texts
                return [*talk, {"role": "assistant", "content": dice.choice(texts)}]
            await asyncio.sleep(AGAIN_S * (0.5 + dice.random()))
        self._agents.errors.append(f"call {number}: no response after {MOST_TRIES} tries")
        return None
