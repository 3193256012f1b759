"""A worker on a node of a Ray cluster: the actor, which runs `engine work` as its child.

The child is the same process as a worker on the coordinator's machine. It dies with its actor, and
Ray ends the actor with the coordinator. Its own connection goes to the coordinator, not through the
actor.
"""

from __future__ import annotations

import asyncio
import contextlib
from asyncio.subprocess import PIPE, STDOUT, Process
from dataclasses import dataclass, field
from importlib import metadata

from engine.serving.crew.processes.worker_process import work_command
from toolwright.cluster.actors import node_address, node_here

PIECE_BYTES = 64 << 10
"""Largest piece of a worker's output, in bytes. A worker whose output is not read waits after a few
of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStart:
    """What an actor needs to start its worker."""

    coordinator: str
    name: str
    credentials: bytes = field(repr=False)
    """What the worker reads from its standard input."""
    folder: str
    """Folder in which the engine was started: relative paths mean the same on every node."""
    version: str
    """Version of the coordinator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStarted:
    """A worker's process."""

    pid: int
    node: str
    """Id of its node."""
    address: str
    """Host part of its node's address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRefused:
    """The worker cannot start; one sentence says why."""

    sentence: str


def version_here() -> str:
    return metadata.version("toolwright")


class WorkerActor:
    """One worker. Call `start` once; then read `output` until it is empty."""

    def __init__(self) -> None:
        self._process: Process | None = None

    async def start(self, wanted: WorkerStart) -> WorkerStarted | WorkerRefused:
        address = node_address()
        if (here := version_here()) != wanted.version:
            return WorkerRefused(
                sentence=f"node {address} has toolwright {here}, but the engine has "
                f"{wanted.version}: install the same version on every node"
            )
        try:
            # A child dies with the thread that starts it: this one, which runs the actor's loop.
            self._process = await asyncio.create_subprocess_exec(
                *work_command(wanted.coordinator, wanted.name),
                stdin=PIPE,
                stdout=PIPE,
                stderr=STDOUT,
                limit=PIECE_BYTES,
                cwd=wanted.folder,
                start_new_session=True,
            )
        except OSError as error:
            return WorkerRefused(
                sentence=f"node {address}: {error}: the engine's folder and its files must be on "
                "every node under the same path"
            )
        if self._process.stdin is not None:
            self._process.stdin.write(wanted.credentials)
            self._process.stdin.close()
        return WorkerStarted(pid=self._process.pid, node=node_here(), address=address)

    async def output(self) -> bytes:
        """The next piece of its output, once there is one; b"" = it has ended."""
        if self._process is None or self._process.stdout is None:
            return b""
        return await self._process.stdout.read(PIECE_BYTES)

    async def ended(self) -> int | None:
        """Its exit code, once it has ended; None if it never started."""
        return None if self._process is None else await self._process.wait()

    async def kill(self) -> None:
        """Returns when it has ended."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
