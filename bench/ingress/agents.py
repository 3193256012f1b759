"""Agents of `bench ingress`: they take trajectories and stream chat completions.

Invariant: an agent makes one call at a time, so call k of an attempt is its sampler's reply k.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from random import Random
from typing import Any

import aiohttp
import orjson

from bench.ingress.policy import words
from bench.ingress.traffic import Session, Traffic
from toolwright import wire
from toolwright.ingress.v1 import ingress_pb2 as pb
from toolwright.ingress.v1 import ingress_pb2_grpc
from toolwright.rpc.channel import call, open_channel

TAKE_S = 30.0
CALL_S = 1800.0
"""Longest time of one call, in seconds."""
_DATA = b"data: {"


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeCall:
    """One call as its client saw it; times in ns of the monotonic clock."""

    attempt: str
    number: int
    """Its place among the calls of its attempt."""
    fresh: bool
    """The whole prompt had to be encoded."""
    asked_ns: int
    said_ns: int
    """The last piece of text came."""
    ended_ns: int
    """The end came: the engine has the call on disk."""


@dataclass(kw_only=True)
class AgentCrowd:
    """All agents of one run. `calls` has what they saw, `failed` the errors."""

    traffic: Traffic
    engine: str
    url: str
    seed: int = 0
    calls: list[MadeCall] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    begun: int = 0
    """Agents whose first call has ended."""
    all_begun: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when each agent's first call has ended: the others follow."""
    go_on: asyncio.Event = field(default_factory=asyncio.Event)
    """No second call comes before it is set."""

    async def run(self) -> None:
        """Returns when all conversations have ended."""
        sessions = self.traffic.all(self.seed)
        connector = aiohttp.TCPConnector(limit=0)
        timeout = aiohttp.ClientTimeout(total=CALL_S)
        async with (
            open_channel(self.engine) as channel,
            aiohttp.ClientSession(connector=connector, timeout=timeout) as http,
            asyncio.TaskGroup() as group,
        ):
            stub = ingress_pb2_grpc.IngressServiceStub(channel)
            for number, session in enumerate(sessions):
                group.create_task(self._agent(number, session, stub, http))

    async def _agent(
        self, number: int, session: Session, stub: Any, http: aiohttp.ClientSession
    ) -> None:
        request = pb.TakeRequest(worker=f"agent-{number}", wait=wire.duration(TAKE_S))
        taken = await call(stub.Take, request, timeout=2 * TAKE_S)
        agent = _Agent(self, number, taken, http)
        try:
            await agent.talk(session)
        except (aiohttp.ClientError, OSError, ValueError, TimeoutError) as error:
            self.failed.append(repr(error))
        finally:
            self._has_begun(agent)
        ended = pb.EndedRequest(key=taken.key, outcome=pb.OUTCOME_DONE)
        await call(stub.Ended, ended, timeout=TAKE_S)

    def _has_begun(self, agent: _Agent) -> None:
        if not agent.begun:
            agent.begun = True
            self.begun += 1
            if self.begun == self.traffic.agents:
                self.all_begun.set()

    async def pause(self, agent: _Agent) -> None:
        """Waits before a later call."""
        self._has_begun(agent)
        await self.go_on.wait()
        if self.traffic.rate:
            await asyncio.sleep(agent.dice.expovariate(self.traffic.rate / self.traffic.agents))


class _Agent:
    """One conversation."""

    def __init__(
        self, crowd: AgentCrowd, number: int, taken: pb.TakeResponse, http: aiohttp.ClientSession
    ) -> None:
        self.begun = False
        self.dice = Random(f"agent {number} {crowd.seed}")
        self._crowd = crowd
        self._name = f"{crowd.seed} {number}"
        self._attempt = taken.attempt
        self._url = f"{crowd.url}/t/{taken.key}/v1/chat/completions"
        self._http = http
        self._made = 0

    async def talk(self, session: Session) -> None:
        talk = _begin(f"agent {self._name}", session.first)
        for number, tokens in enumerate(session.replies):
            if number:
                await self._crowd.pause(self)
            if session.sub_calls and number == session.calls // 2:
                await self._sub_agent(session)
            talk.append(await self._call(talk, tokens, fresh=number == 0))
            text = words(session.grows, f"{self._name} {number}")
            talk.append({"role": "user", "content": text})

    async def _sub_agent(self, session: Session) -> None:
        talk = _begin(f"sub-agent {self._name}", session.first // 4)
        for number in range(session.sub_calls):
            talk.append(await self._call(talk, session.replies[number], fresh=number == 0))
            talk.append({"role": "user", "content": words(session.grows, f"sub {number}")})
            await self._crowd.pause(self)

    async def _call(
        self, talk: list[dict[str, str]], tokens: int, *, fresh: bool
    ) -> dict[str, str]:
        """The assistant's message. Raises ClientError, or ValueError for an error of the stream."""
        body = {"model": "policy", "messages": talk, "stream": True, "max_tokens": tokens}
        data, texts, said_ns, ended_ns = orjson.dumps(body), list[str](), 0, 0
        headers = {"Content-Type": "application/json"}
        asked_ns = time.monotonic_ns()
        async with self._http.post(self._url, data=data, headers=headers) as response:
            if response.status != 200:
                raise ValueError(f"{response.status}: {await response.text()}")
            async for line in response.content:
                if line.startswith(b"data: [DONE]"):
                    ended_ns = time.monotonic_ns()
                elif line.startswith(_DATA):
                    event = orjson.loads(line[len(_DATA) - 1 :])
                    if "error" in event:
                        raise ValueError(str(event["error"]))
                    for choice in event["choices"]:
                        if text := choice["delta"].get("content"):
                            texts.append(text)
                            said_ns = time.monotonic_ns()
        if not ended_ns:
            raise ValueError("the stream ended too early")
        self._crowd.calls.append(
            MadeCall(
                attempt=self._attempt,
                number=self._made,
                fresh=fresh,
                asked_ns=asked_ns,
                said_ns=said_ns or ended_ns,
                ended_ns=ended_ns,
            )
        )
        self._made += 1
        return {"role": "assistant", "content": "".join(texts)}


def _begin(name: str, tokens: int) -> list[dict[str, str]]:
    return [
        {"role": "system", "content": f"You are {name}."},
        {"role": "user", "content": words(tokens, name)},
    ]
