"""Places: the number of trajectories of a lane in flight at once, first come, first served."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Self


class Places:
    """`async with` takes one place for a trajectory in flight. `used` of `limit` are taken. A
    returned place goes, within the same call, to the caller that has waited longest.

    on_free: called when a place comes free that no caller waits for.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.on_free: Callable[[], None] | None = None
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def free(self) -> int:
        """Places that are neither taken nor awaited."""
        return self.limit - self.used - len(self._waiting)

    async def __aenter__(self) -> Self:
        if self.used < self.limit and not self._waiting:
            self.used += 1
            return self
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn in self._waiting:
                self._waiting.remove(turn)
            elif turn.done() and not turn.cancelled():  # the place came with the cancellation
                self._give_back()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._give_back()

    def resize(self, limit: int) -> None:
        """Sets the limit. Taken places stay taken; new ones go to the callers that wait."""
        self.limit = limit
        if self.used >= limit:
            return
        while self._waiting and self.used < self.limit:
            turn = self._waiting.popleft()
            if not turn.done():
                self.used += 1
                turn.set_result(None)
        if self.used < self.limit and self.on_free is not None:
            self.on_free()

    def _give_back(self) -> None:
        while self._waiting and self.used <= self.limit:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.used -= 1
        if self.on_free is not None:
            self.on_free()
