"""What the host keeps of an open session: its tools' states, its ledger, its lease."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from toolsvc.ledger import Ledger
from toolsvc.tool import Cancellation, Tool
from toolsvc.turnstile import Turnstile
from toolsvc.types import Descriptor, Opened, OpenRequest, Recorded, SessionInfo


@dataclass(slots=True)
class OpenTool:
    """A tool as one session has it."""

    tool: Tool
    descriptor: Descriptor
    state: Any
    turnstile: Turnstile


@dataclass(slots=True, eq=False)
class RunningCall:
    """A call that was begun. `task` ends in Recorded or Refused; it is what the ledger holds."""

    cancellation: Cancellation
    asked_at: float
    task: asyncio.Task[Recorded] = field(init=False)
    queueing: bool = False
    started_at: float | None = None


class OpenSession:
    """One trajectory's environment."""

    def __init__(self, request: OpenRequest, info: SessionInfo, lease_until: float) -> None:
        self.info = info
        self.digest = request.digest
        self.lease_until = lease_until
        self.tools: dict[str, OpenTool] = {}
        self.ledger: Ledger[RunningCall] = Ledger()
        self.opened: Opened | None = None

    @property
    def descriptors(self) -> tuple[Descriptor, ...]:
        return tuple(entry.descriptor for entry in self.tools.values())

    @property
    def lost(self) -> str | None:
        for entry in self.tools.values():
            reason = entry.tool.lost(entry.state)
            if reason is not None:
                return reason
        return None
