"""The agent host: takes trajectories, keeps one agent alive for each, and reports their ends.

Invariants
- At most `at_once` agents of a task live.
- A trajectory whose engine says that it has ended loses its agent within `HOLD_S` and the time that
  its keeper needs.
- A process that an agent left, and that its keeper lost, is ended by the host, which adopts it.
- A stop ends all agents, and reports their trajectories as ended by infrastructure.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import structlog

from agents.client import ClientSettings
from agents.engine_link import EngineLink
from agents.environment import environment
from agents.errors import StartError
from agents.jail.forwarder import forwarded
from agents.jail.jail import PORT, Jail, JailStart
from agents.jail.named_files import moved
from agents.outcomes import (
    STOPPED,
    Ending,
    Result,
    ResultFault,
    ending_of,
    read_result,
)
from agents.process.agent_process import AgentProcess
from agents.work_folder import result_bytes, work_folder
from toolwright import wire
from toolwright.ingress.v1 import ingress_pb2 as pb
from toolwright.recipe import Agent
from toolwright.rpc.errors import ServiceError, TransportError

HOLD_S = 2.0
"""Interval between the messages that say which agents live, in seconds."""
OVER_S = 5.0
"""Pause before the next Take once the run is over, in seconds."""
MOST_LOGGED = 2000
"""Characters of the output of an agent that failed, in the host's log."""
LAST_S = 5.0
"""Longest time for the reports of a stop, in seconds."""

log = structlog.get_logger("agents")


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What an agent of a task is. words: its command line. jail: None = it has none."""

    rules: Agent
    words: tuple[str, ...]
    jail: Jail | None = None


class AgentHost:
    """Agents of one recipe. `run` until it is cancelled, which ends them."""

    def __init__(
        self, link: EngineLink, programs: Mapping[str, Program], base: Path, ingress: str
    ) -> None:
        """programs: by the task's name. base: for the agents' folders. ingress: URL of the ingress,
        without a path."""
        self._link = link
        self._programs = programs
        self._base = base
        self._ingress = ingress
        self._address = address_of(ingress)
        self._running = Counter[str]()
        self._freed = asyncio.Event()
        self._agents = dict[str, AgentProcess]()
        """Living agents, by the trajectory's key."""
        self._over = set[str]()
        """Keys of trajectories that have ended before their agents."""
        self._starting = 0

    async def run(self) -> None:
        """Raises StartError if the engine refuses this host."""
        refused: Exception | None = None
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._hold(group))
                await self._take(group)
        except* (ServiceError, TransportError) as errors:
            refused = errors.exceptions[0]
        if refused is not None:
            raise StartError(f"the engine refuses agents serve: {refused}")

    async def _take(self, group: asyncio.TaskGroup) -> None:
        number = 1
        while True:
            self._freed.clear()
            tasks = [
                name
                for name, program in self._programs.items()
                if self._running[name] < program.rules.at_once
            ]
            if not tasks:
                await self._freed.wait()
                continue
            taken = await self._link.take(number, tasks)
            if taken.key:
                self._running[taken.task.name] += 1
                group.create_task(self._serve(number, taken))
                number += 1
            elif taken.over:
                await asyncio.sleep(OVER_S)

    async def _hold(self, group: asyncio.TaskGroup) -> None:
        while True:
            for key in await self._link.hold(list(self._agents)):
                if (agent := self._agents.get(key)) is not None and key not in self._over:
                    self._over.add(key)
                    group.create_task(agent.end())
            if not self._starting:
                end_adopted({one.pid for one in self._agents.values()})
            await asyncio.sleep(HOLD_S)

    async def _serve(self, number: int, taken: pb.TakeResponse) -> None:
        """One trajectory, from its start to its report."""
        name, key = taken.task.name, taken.key
        about = log.bind(trajectory=taken.trajectory_id, attempt=taken.attempt)
        try:
            ending, result, output = await self._live(number, taken)
            if key in self._over:
                about.info("agent_ended", after="its trajectory")
                return
            if taken.reward_key and (result.reward is not None or result.parts):
                await self._report(about, taken.reward_key, result)
            calls = await self._link.ended(key, ending, result.answer, output)
            about.info("agent_ended", outcome=ending.outcome, calls=calls, error=ending.error)
            if ending.outcome != pb.OUTCOME_DONE or not calls:
                about.warning("agent_failed", output=output[-MOST_LOGGED:])
        except (ServiceError, TransportError) as error:
            about.warning("end_refused", error=str(error))
        except asyncio.CancelledError:
            with suppress(ServiceError, TransportError, TimeoutError):
                async with asyncio.timeout(LAST_S):
                    await self._link.ended(key, STOPPED, None, "")
            raise
        finally:
            self._over.discard(key)
            self._running[name] -= 1
            self._freed.set()

    async def _report(self, about: Any, reward_key: str, result: Result) -> None:
        try:
            await self._link.report(reward_key, result)
        except (ServiceError, TransportError) as error:
            about.warning("reward_refused", error=str(error))

    async def _live(self, number: int, taken: pb.TakeResponse) -> tuple[Ending, Result, str]:
        """The whole life of an agent: its ending, its result and its output."""
        program = self._programs[taken.task.name]
        task = wire.task_from_proto(taken.task)
        try:
            with work_folder(self._base, number, task) as folder:
                agent, code = await self._run_agent(program, folder, taken.key)
                data = result_bytes(folder)
        except (OSError, ValueError) as error:  # of the folder, the task or the command
            return Ending(outcome=pb.OUTCOME_INFRASTRUCTURE, error=str(error)), Result(), ""
        output = agent.output.text()
        ending = ending_of(code, program.rules.retry_exits, agent.output.last_line())
        try:
            return ending, read_result(data or b"{}"), output
        except ResultFault as fault:
            return _faulty(ending, fault), Result(), output

    async def _run_agent(
        self, program: Program, folder: Path, key: str
    ) -> tuple[AgentProcess, int]:
        """An agent after its end, and its exit code. Raises OSError if it cannot be started."""
        jail = program.jail
        root = f"http://127.0.0.1:{PORT}" if jail else self._ingress
        client = ClientSettings.of(root, key)
        variables = environment(client, folder, program.rules.environment, os.environ)
        async with AsyncExitStack() as stack:
            self._starting += 1
            try:
                if jail is None:
                    agent = await AgentProcess.start(program.words, folder, variables)
                else:
                    words = moved(program.words, jail.folders, folder)
                    jail.give(folder)
                    start = stack.enter_context(JailStart(words, folder, variables))
                    agent = await AgentProcess.start(
                        jail.words(folder), "/", jail.environment(), start.stdin
                    )
                self._agents[key] = agent
            finally:
                self._starting -= 1
            try:
                if jail is not None and (listener := await start.listener()) is not None:
                    await stack.enter_async_context(forwarded(listener, *self._address))
                code = await agent.wait()
            except asyncio.CancelledError:
                await agent.end()
                raise
            finally:
                agent.close()
                del self._agents[key]
            own = None if jail is None else start.exit_code()
            return agent, code if own is None else own


def address_of(url: str) -> tuple[str, int]:
    """Host and port of a URL without a path. Raises StartError."""
    found = urlsplit(url)
    if found.scheme != "http" or not found.hostname or found.port is None:
        raise StartError(f"{url!r}: write the ingress as http://HOST:PORT")
    return found.hostname, found.port


def _faulty(ending: Ending, fault: ResultFault) -> Ending:
    """The ending of an agent whose result file cannot be read."""
    if ending.outcome != pb.OUTCOME_DONE:
        return ending
    return Ending(outcome=pb.OUTCOME_FAILED, error=str(fault))


def end_adopted(own: set[int]) -> None:
    """Ends processes that this one adopted. own: children that it started."""
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):
            children = (task / "children").read_text(encoding="ascii").split()
            for pid in map(int, children):
                if pid not in own:
                    log.info("orphan_ended", pid=pid)
                    with suppress(OSError):
                        os.kill(pid, signal.SIGKILL)
                        os.waitpid(pid, os.WNOHANG)
