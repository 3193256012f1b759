"""The interfaces of a runner and of the boxes that it starts: one for a trajectory, one for its
verification.

Invariants
- A box begins with the task's repository in its folder and with nothing of any other box.
- What is in a box is the policy's: whatever comes out of it is data, never trusted.
- `close` leaves nothing of it behind.

A runner knows nothing of tasks, tests or rewards.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from toolsvc.plugin.tool import Cancellation
from toolsvc.tools.files import Entry
from toolwright.types import ToolErrorKind


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxLimits:
    """Limits of one box. `requested_*`: what a scheduler keeps free for it, at most the limit."""

    cpus: float
    memory_bytes: int
    processes: int
    requested_cpus: float
    requested_memory_bytes: int
    life: float
    """Seconds after which a box ends by itself, should the service not live to close it."""


class CommandRun(NamedTuple):
    """A command that ended. `code`: its exit status, None if it was stopped. `dropped`: bytes of
    output that were not kept. `lost`: why the box went with it, "" while it is still there."""

    output: bytes
    dropped: int = 0
    code: int | None = None
    kind: ToolErrorKind = ToolErrorKind.NONE
    lost: str = ""


class StartFailed(Exception):
    """No box could be started; another try may get one."""


class BoxGone(Exception):
    """The box was lost through no fault of what ran in it."""


class BoxError(Exception):
    """Something could not be read from the box, or written to it; the box is still there."""


class Box(ABC):
    """Takes one call at a time. Every call after the box was lost raises BoxGone."""

    folder: str
    """Folder of the repository. Commands run there, and relative paths begin there."""
    gone: str | None = None
    """Why it was lost through no fault of what ran in it; None while it was not."""
    broken: str | None = None
    """How the code in the box ended the box. Every later call reports this."""

    @abstractmethod
    async def exec(
        self, command: str, *, limit: float, keep: int, cancellation: Cancellation | None = None
    ) -> CommandRun:
        """Runs the command in a fresh bash with empty standard input, for `limit` seconds at most;
        keeps the first `keep` bytes of what it prints. Raises BoxError if the box does not run
        it."""

    @abstractmethod
    async def read(self, command: str, *, limit: float, most: int) -> bytes:
        """The bytes that the command writes to standard output, for binary data. Raises BoxError if
        it fails, takes longer than `limit` seconds, or writes more than `most`."""

    @abstractmethod
    async def write(self, entries: Sequence[Entry]) -> None:
        """Puts the files below the box's folder. Nothing but folders may stand where they go.
        Raises BoxError if there is no room."""

    @abstractmethod
    async def close(self) -> None:
        """Ends all that runs in it. Never raises; may be called again."""


class Runner(ABC):
    """Starts boxes. `start` and `stop` frame its own life."""

    isolation: str = ""
    """Isolation level, once started."""

    @abstractmethod
    async def start(self) -> None:
        """Called once. Raises StartError if the runner cannot work here."""

    @abstractmethod
    async def stop(self) -> None:
        """Called once, after all boxes were closed; removes the remains of lost boxes."""

    @abstractmethod
    async def new_box(self, image: str) -> Box:
        """A box made of the image. Raises StartFailed; nothing is left of the box then."""

    async def box(self, image: str, checkout: Sequence[Entry]) -> Box:
        """A box made of the image, with the files in its folder; without files the repository is
        in the image. Raises StartFailed; nothing is left of the box then."""
        box = await self.new_box(image)
        try:
            if checkout:
                await box.write(checkout)
        except BaseException as error:
            await box.close()
            if isinstance(error, BoxError | BoxGone):
                why = f"the repository was not put into {image or 'its sandbox'}: {error}"
                raise StartFailed(why) from error
            raise
        return box

    def figures(self) -> Mapping[str, float]:
        return {}
