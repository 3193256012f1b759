"""What the reference service keeps: sessions, and their calls."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from tests.support.conformance.reference.tools import State
from toolwright.tool.v1 import tool_pb2 as pb


@dataclass(slots=True, eq=False, kw_only=True)
class Call:
    """One call of the ledger. `answer` is its record; limits are seconds."""

    request: pb.CallToolRequest
    identity: bytes
    queue_limit: float
    run_limit: float
    answer: asyncio.Future[pb.CallResult] = field(default_factory=asyncio.Future)
    asked: float = field(default_factory=time.perf_counter)
    started: float | None = None
    work: asyncio.Task[None] | None = None

    @property
    def queued_seconds(self) -> float:
        return (self.started or time.perf_counter()) - self.asked

    @property
    def run_seconds(self) -> float:
        return 0.0 if self.started is None else time.perf_counter() - self.started


@dataclass(slots=True, eq=False)
class ReferenceSession:
    """One open session."""

    request: pb.OpenSessionRequest
    lease_until: float
    tools: list[pb.ToolDescriptor]
    state: State = field(default_factory=State)
    calls: dict[str, Call] = field(default_factory=dict)
    acknowledged: int = 0
    began: dict[str, None] = field(default_factory=dict)
    """Ids of the calls that have begun to run, in that order."""
    inherited: set[str] = field(default_factory=set)
    """Those that ran in the session of which this is a fork."""
