"""The members of one group that may become branches, and who becomes one.

A group begins with some members at the prompt, the starters. Each other member waits, with a place
in flight and without a session: for a branch of another member, or, once nobody of the group rolls
out any more, to begin at the prompt itself.

Invariants
- Every member rolls out once, so the group has its size whatever branched and whatever failed.
- A branch takes a member that has its place already: nobody waits for a place with a session open.
- Nobody waits for a branch that cannot come: the last rollout to end sends all who wait to the
  prompt, and so does `close`.
- A branch that nobody takes is closed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from engine.core.images.media import Media
from engine.core.tools.tool_sessions import Environment
from engine.core.trajectory.log import AttemptLog
from toolwright.recipe import Branching


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """A log that begins as another one, its sessions, and the images that it has seen."""

    log: AttemptLog
    environment: Environment
    media: Sequence[Media] = ()


_Waiter = tuple[str, "asyncio.Future[Branch | None]"]
"""(name of the attempt that the member would make, its branch)."""


class BranchBudget:
    """Of a group of `size` members, `starters` of which begin at the prompt."""

    def __init__(self, table: Branching, *, seed: int, starters: int, size: int) -> None:
        self.table = table
        self.seed = seed
        self._rolling = starters
        self._left = size - starters
        self._waiting: deque[_Waiter] = deque()
        self._closed = starters == 0

    @property
    def open(self) -> bool:
        """A member may still become a branch, now or as soon as it has a place."""
        return self._left > 0 and not self._closed

    async def wait(self, attempt: str) -> Branch | None:
        """The branch that a member becomes, as the attempt of this name; None: it begins at the
        prompt."""
        if self._closed:
            return None
        waiter: asyncio.Future[Branch | None] = asyncio.get_running_loop().create_future()
        entry = attempt, waiter
        self._waiting.append(entry)
        try:
            return await waiter
        except asyncio.CancelledError:
            if entry in self._waiting:
                self._waiting.remove(entry)
            elif waiter.done() and not waiter.cancelled() and (branch := waiter.result()):
                branch.environment.close()  # it came with the cancellation
            raise

    async def branch(self, fork: Callable[[str], Awaitable[Branch]]) -> bool:
        """Makes a member that waits the branch that `fork(attempt)` makes; False where none waits.

        Whatever `fork` raises is raised, and the member waits on.
        """
        if not self._waiting:
            return False
        entry = attempt, waiter = self._waiting.popleft()
        try:
            branch = await fork(attempt)
        except BaseException:
            if not waiter.done():
                self._waiting.appendleft(entry)
            if self._closed:
                self.close()  # it was closed meanwhile
            raise
        if waiter.done():  # the group is given up
            branch.environment.close()
            return False
        self._left -= 1
        self._rolling += 1
        waiter.set_result(branch)
        return True

    def ended(self) -> None:
        """A member's log has ended."""
        self._rolling -= 1
        if self._rolling <= 0:
            self.close()

    def close(self) -> None:
        """No branch comes any more: all who wait begin at the prompt."""
        self._closed = True
        while self._waiting:
            _, waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
