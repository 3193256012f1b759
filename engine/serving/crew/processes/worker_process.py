"""A worker's process as its coordinator sees it, and the command that it runs."""

from __future__ import annotations

import os
import sys
from typing import Protocol


def work_command(coordinator: str, name: str) -> tuple[str, ...]:
    """The command of a worker that dies with this process. coordinator: address of the crew's
    service. name: of this life of the worker."""
    return (
        *(sys.executable, "-P", "-m", "engine.cli", "work"),
        *("--coordinator", coordinator),
        *("--name", name),
        *("--parent", str(os.getpid())),
    )


class Process(Protocol):
    """The process of a worker: `start` it once; `kill` it in any case."""

    @property
    def pid(self) -> int: ...

    async def start(self) -> None:
        """Raises StartupError if the system starts no process."""

    async def ended(self) -> str:
        """Why the process ended, when it has."""
        ...

    async def kill(self) -> bool:
        """Ends the process; a stopped one ends without another step. False = its end was not seen:
        it may send requests until its lease ends."""
        ...
