"""Boxes of docker or podman, by their command line, which is the same for both.

A container has no network, no more privileges than files of its own need, and the limits of
`BoxLimits`. It is marked with the service's own label, ends by itself after `life`, and is removed
by `close`, or with the service.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from typing import Any

from toolsvc.errors import StartError
from toolsvc.tools.swe.boxes.box import Box, BoxGone, BoxLimits, Runner, StartFailed
from toolsvc.tools.swe.boxes.container import ContainerBox, main_process
from toolwright.containers import SECONDS, Take, ask, bounds, last_line, program_fault, run


class CliRunner(Runner):
    def __init__(self, program: str, limits: BoxLimits, folder: str) -> None:
        """`folder`: of the repository in each container."""
        self._program = program
        self._limits = limits
        self._folder = folder
        self._label = f"toolwright.service={secrets.token_hex(8)}"
        self._usable = False
        self.isolation = program

    async def start(self) -> None:
        if fault := await program_fault(self._program):
            raise StartError(f"{fault}, or set swe.runner=local for boxes in the sandbox")
        self._usable = True

    async def stop(self) -> None:
        if not self._usable:
            return
        code, said = await self._ask("ps", "--all", "--quiet", "--filter", f"label={self._label}")
        left = said.split() if code == 0 else []
        if left:
            await self._ask("rm", "--force", *left)

    async def new_box(self, image: str) -> Box:
        name = f"toolwright-{secrets.token_hex(8)}"
        box = CliBox(self._program, name, self._folder, self._limits.life)
        try:
            code, said = await self._ask("run", *self._arguments(name, image), limit=None)
        except BaseException:
            await box.close()
            raise
        if code:
            await box.close()  # It may have been made, and not started.
            raise StartFailed(f"{self._program} run {image}: {last_line(said)}")
        return box

    def _arguments(self, name: str, image: str) -> list[str]:
        limits = self._limits
        entry, *arguments = main_process(limits.life)
        return [
            *("--detach", "--name", name, "--label", self._label),
            *("--network", "none", "--cpus", f"{limits.cpus:g}"),
            *bounds(limits.memory_bytes, limits.processes),
            # Else podman asks it to end first, and waits ten seconds for one that never does.
            *("--stop-signal", "KILL", "--workdir", self._folder, "--entrypoint", entry),
            *(image, *arguments),
        ]

    async def _ask(self, *arguments: str, limit: float | None = SECONDS) -> tuple[int, str]:
        return await ask(self._program, *arguments, limit=limit)


class CliBox(ContainerBox):
    def __init__(self, program: str, name: str, folder: str, life: float) -> None:
        super().__init__(folder, life)
        self._program = program
        self._name = name
        self._closed = False

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            remove = ("rm", "--force", self._name)
            await asyncio.shield(run(self._program, remove, b"", lambda _, data: None))

    async def _process(self, command: str, given: bytes, take: Take) -> int:
        where = ("--interactive", "--workdir", self.folder, self._name)
        return await run(self._program, ("exec", *where, "bash", "-c", command), given, take)

    async def _ended(self, patient: bool) -> str:
        form = ("--type", "container", "--format", "{{json .State}}")
        code, said = await ask(self._program, "inspect", *form, self._name)
        if code:
            raise BoxGone(f"{self._program} inspect: {last_line(said)}")
        return how_ended(said)


def how_ended(said: str) -> str:
    """How the container ended, read from its state in JSON; "" while it runs. Raises BoxGone for a
    state that no process of its own brings about."""
    try:
        state: dict[str, Any] = json.loads(said)
        if state["Running"] and not state["Paused"]:
            return ""
        if state["Status"] not in ("exited", "stopped"):
            raise BoxGone(f"the container is {state['Status']}")
        if state["OOMKilled"]:
            return "the container ran out of memory"
        return f"the container's first process ended with exit code {int(state['ExitCode'])}"
    except (ValueError, TypeError, KeyError) as error:
        raise BoxGone(f"the container's state cannot be read: {error}") from error
