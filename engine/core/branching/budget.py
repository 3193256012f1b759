"""The members of one group that may become branches.

A group begins with some members at the prompt, the starters. Each other member waits, with a place
in flight and without a session. It becomes a branch of another member. Once no member of the group
rolls out any more, it begins at the prompt itself.

Invariants
- Every member rolls out once, so the group keeps its size whatever branched or failed.
- A branch takes a member that already has a place: no open session waits for a place.
- No member waits for a branch that cannot come. The last rollout to end sends all waiting members
  to the prompt, and so does `close`.
- A branch that no member takes is closed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from engine.core.images.media import Media
from engine.core.tools.services import ToolSessions
from engine.core.trajectory.log import AttemptLog
from toolwright.recipe import Branching


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """A log that begins as another one, with its sessions and the images that it has shown."""

    log: AttemptLog
    tool_sessions: ToolSessions
    media: Sequence[Media] = ()


_Waiter = tuple[str, "asyncio.Future[Branch | None]"]
"""(name of the attempt that the member would make, future of its branch)."""


class BranchBudget:
    """Branches of a group of `size` members; `starters` of them begin at the prompt."""

    def __init__(self, table: Branching, *, seed: int, starters: int, size: int) -> None:
        self.table = table
        self.seed = seed
        self._rolling = starters
        self._left = size - starters
        self._waiting: deque[_Waiter] = deque()
        self._closed = starters == 0

    @property
    def open(self) -> bool:
        """Whether a member may still become a branch, now or as soon as it has a place."""
        return self._left > 0 and not self._closed

    async def wait(self, attempt: str) -> Branch | None:
        """The branch that a member becomes, as the attempt of this name. None: the member begins at
        the prompt."""
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
                branch.tool_sessions.close()  # it came with the cancellation
            raise

    async def branch(self, fork: Callable[[str], Awaitable[Branch]]) -> bool:
        """Gives the branch that `fork(attempt)` makes to a waiting member. False if no member
        waits.

        An error of `fork` is raised, and the member goes on waiting.
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
        if waiter.done():  # the group was given up
            branch.tool_sessions.close()
            return False
        self._left -= 1
        self._rolling += 1
        waiter.set_result(branch)
        return True

    def ended(self) -> None:
        """Counts a member whose log has ended."""
        self._rolling -= 1
        if self._rolling <= 0:
            self.close()

    def close(self) -> None:
        """Ends the branching: all waiting members begin at the prompt."""
        self._closed = True
        while self._waiting:
            _, waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
