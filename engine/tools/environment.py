"""One trajectory's environment: a session of the same id on each service, and all their tools.

Invariants
- A name is one tool: the first service's, in the recipe's order, that has it.
- A session of which a renewal says that it is lost ends its attempt there and then.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from google.protobuf.message import Error as MessageError

from engine.errors import SessionLost
from engine.tools.calls import CallPlace, PendingCall, refused
from engine.tools.service import Part
from engine.types import Call, CallOutcome, ToolSpec
from toolwright.types import ToolErrorKind

UNKNOWN_TOOL = ToolErrorKind.UNKNOWN_TOOL


class Session:
    """One trajectory's environment: a session of the same id on each service."""

    def __init__(self, identity: str, on_close: Callable[[Session], None]) -> None:
        self.id = identity
        self.parts: list[Part] = []
        self.pending: list[PendingCall] = []
        """Calls of the turn in progress."""
        self._on_close = on_close
        self._held: asyncio.Timeout | None = None
        self._lost = ""

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """Those of this session now, which calls may add to, in the order of the recipe's
        services."""
        return tuple(tool for tool, _ in self._by_name().values())

    def _by_name(self) -> dict[str, tuple[ToolSpec, Part]]:
        named: dict[str, tuple[ToolSpec, Part]] = {}
        for part in self.parts:
            for tool in part.tools:
                named.setdefault(tool.name, (tool, part))
        return named

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Ends the block with SessionLost as soon as the session is known to be lost."""
        held = asyncio.timeout(0.0 if self._lost else None)
        try:
            async with held:
                self._held = held
                yield
        except TimeoutError:
            if not held.expired():
                raise
            raise SessionLost(self._lost) from None
        finally:
            self._held = None

    def lose(self, service: str) -> None:
        """`service` has told that it does not hold the session any more."""
        if self._lost:
            return
        self._lost = f"tools.{service}: session {self.id} is lost, says the renewal of its lease"
        if self._held is not None:
            self._held.reschedule(asyncio.get_running_loop().time())

    def dispatch(self, request: Call, place: CallPlace) -> PendingCall | CallOutcome:
        """Hands the call to the channel now; await its `result`.

        What no service could take is answered at once: it is the policy's mistake, and it reads
        so.
        """
        part = self._part(request)
        if part is None:
            names = ", ".join(self._by_name()) or "none"
            return refused(f"there is no tool {request.tool!r}, only {names}", UNKNOWN_TOOL)
        try:
            pending = PendingCall(part, request, place)
        except (TypeError, ValueError, OverflowError, MessageError) as error:
            return refused(f"the arguments cannot be sent: {error}")
        self.pending = [one for one in self.pending if not one.settled]
        self.pending.append(pending)
        return pending

    def _part(self, request: Call) -> Part | None:
        if request.tool:
            _, part = self._by_name().get(request.tool, (None, None))
            return part
        named = (part for part in self.parts if part.name == request.service)
        return next(named, self.parts[0] if self.parts else None)

    async def check_reach(self) -> None:
        """ToolServiceFailed when a service that owes the result of a call does not answer."""
        for part in self.parts:
            if any(one.place is part and not one.settled for one in self.pending):
                await part.check_reach()

    def close(self) -> None:
        """Soon: nobody waits for it."""
        self._on_close(self)
