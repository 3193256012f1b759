"""The workers of an engine as actors on a Ray cluster: `engine serve --backend ray`.

Invariants
- Ray carries a worker's start, its output and its end. All else is the worker's own gRPC stream.
- The coordinator's port requires a token that it makes for its workers. Off loopback it uses TLS.
- The end of a worker counts as seen if its actor saw it, or if the actor ended on a living node.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from collections.abc import Iterator
from contextlib import AsyncExitStack

import msgspec
import structlog

from engine.core.tools.output_log import OutputLog
from engine.errors import StartupError
from engine.serving.crew.crew_service import CrewServicer, crew_server
from engine.serving.crew.processes.ray_actor import (
    WorkerActor,
    WorkerRefused,
    WorkerStart,
    WorkerStarted,
    version_here,
)
from engine.serving.worker.credentials import COORDINATOR_NAME, Credentials
from toolwright.cluster.actors import (
    ActorGone,
    ActorSilent,
    ClusterError,
    RayActor,
    connected,
    lives,
    living_nodes,
    node_address,
)
from toolwright.cluster.certificate import self_signed
from toolwright.rpc.auth import Tokens
from toolwright.rpc.options import is_local

CPUS = 1.0
"""CPUs of a worker: its event loop uses at most one."""
ROOM_S = 30.0
"""Interval between warnings while no node has room for a worker."""
KILL_S = 2.0
"""Longest wait for an actor that is to kill its worker."""
SILENT_S = 1.0
"""Pause before Ray is asked again about an actor that does not answer."""

log = structlog.get_logger("workers")


@contextlib.contextmanager
def on_ray(address: str, workers: int) -> Iterator[RayWorkers]:
    """Connects to the cluster whose head is at `address`, host:port. Raises StartupError if it
    cannot be used or has no room for so many workers."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(connected(address))
            cpus = [node.get("CPU", 0.0) for node in living_nodes().values()]
        except ClusterError as error:
            raise StartupError(str(error)) from error
        if sum(int(one // CPUS) for one in cpus) < workers:
            have = ", ".join(f"{one:g}" for one in cpus)
            raise StartupError(
                f"the cluster has no room for {workers} workers of {CPUS:g} CPU: its nodes have "
                f"{have}; lower --workers, or add nodes"
            )
        yield RayWorkers()


class RayWorkers:
    """How an engine has workers on the cluster that this process is connected to."""

    def __init__(self) -> None:
        self._credentials = Credentials(token=secrets.token_hex(32))
        self._address = ""

    async def serve(self, servicer: CrewServicer, stack: AsyncExitStack) -> None:
        """Listens where the cluster's nodes reach this one."""
        host = node_address()
        certificate = None
        if not is_local(f"{host}:0"):
            certificate = self_signed(COORDINATOR_NAME)
            self._credentials.certificate = certificate.chain.decode()
        server = crew_server(
            f"{host}:0",
            servicer,
            tokens=Tokens(self._credentials.token),
            certificate=certificate,
        )
        await server.start()
        stack.push_async_callback(server.stop, 1.0)
        self._address = f"{host}:{server.port}"

    def make(self, name: str, output: OutputLog) -> RayWorker:
        start = WorkerStart(
            coordinator=self._address,
            name=name,
            credentials=msgspec.json.encode(self._credentials),
            folder=os.getcwd(),
            version=version_here(),
        )
        return RayWorker(start, output)


class RayWorker:
    """A `Process` on a node with room; nodes with fewer actors come first."""

    def __init__(self, start: WorkerStart, output: OutputLog) -> None:
        self.pid = 0
        self._start = start
        self._output = output
        self._actor: RayActor | None = None
        self._node = ""
        self._failure = ""
        """Why it does not start."""
        self._seen_ended = False

    async def start(self) -> None:
        """Waits for room, however long that takes. `ended` has the reason if it does not start."""
        self._actor = RayActor(WorkerActor, cpus=CPUS)
        starting = asyncio.ensure_future(self._actor.ask("start", self._start))
        try:
            while not (await asyncio.wait({starting}, timeout=ROOM_S))[0]:
                log.warning(
                    "worker_waits_for_room",
                    worker=self._start.name,
                    fix="see `ray status`: free a CPU, or add a node",
                )
            answer: WorkerStarted | WorkerRefused = await starting
        except (ActorGone, ActorSilent) as error:
            answer = WorkerRefused(sentence=f"its actor ended at its start: {error}")
        finally:
            starting.cancel()
        if isinstance(answer, WorkerRefused):
            self._failure = answer.sentence
            self._print(answer.sentence)
            return
        self.pid, self._node = answer.pid, answer.node
        self._print(f"worker {self._start.name} is process {answer.pid} on node {answer.address}")

    async def ended(self) -> str:
        if self._failure or self._actor is None:
            return self._failure or "it was not started"
        async with self._output.bounded():
            while True:
                try:
                    return await self._follow(self._actor)
                except ActorSilent:
                    await asyncio.sleep(SILENT_S)
                except ActorGone as gone:
                    self._seen_ended = await lives(self._node)
                    return f"its actor ended: {gone}"

    async def kill(self) -> bool:
        if self._actor is None:
            return True
        if not self._seen_ended:
            with contextlib.suppress(ActorGone, ActorSilent, TimeoutError):
                async with asyncio.timeout(KILL_S):
                    await self._actor.ask("kill")
                    self._seen_ended = True
        await self._actor.kill()
        return self._seen_ended

    async def _follow(self, actor: RayActor) -> str:
        """Copies the worker's output to its file until the worker has ended. A full disk loses
        output, and no worker."""
        while piece := await actor.ask("output"):
            with contextlib.suppress(OSError), self._output.writer() as file:
                file.write(piece)
        code = await actor.ask("ended")
        self._seen_ended = True
        return f"exit code {code}: {self._output.last_words()} (see {self._output.path})"

    def _print(self, line: str) -> None:
        """Begins its output with a line of the coordinator."""
        with contextlib.suppress(OSError), self._output.writer() as file:
            self._output.begin()
            file.write(f"{line}\n".encode())
