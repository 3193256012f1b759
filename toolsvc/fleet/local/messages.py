"""What the front and a worker say to each other: JSON, one message a line, over the worker's
standard input and output.

The front says `Assignment` once, then asks `AskSessions` and `AskMetrics`. The worker answers each:
`Started` or `Failed`, `Holding`, `MetricsPage`. Unasked it says `Closed`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from toolsvc.edge.wire import LONGEST_ID
from toolsvc.fleet.hosts import Ready
from toolsvc.service_config import ServiceConfig

_ESCAPED = 6
"""Bytes that JSON takes for one character, at most."""
LONGEST_LINE = 16 << 20
"""Bytes; a page of metrics is the longest message but `Holding`, far below."""


def longest_line(config: ServiceConfig) -> int:
    """Bytes; the longest is `Holding` with ids that clients chose."""
    return LONGEST_LINE + config.max_sessions * LONGEST_ID * _ESCAPED


class Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    def line(self) -> bytes:
        return self.model_dump_json().encode() + b"\n"


class Assignment(Message):
    """What the worker is to be."""

    kind: Literal["assignment"] = "assignment"
    config: ServiceConfig
    slot: int
    listen: str
    """An address of its own; port 0 = any that is free."""
    advertise: str
    """Host by which clients reach it; "" = as it listens."""
    link: str
    """Where it answers the front."""
    front: str
    """Where the front answers it."""
    token: str
    """That both ask for there."""


class AskSessions(Message):
    kind: Literal["ask_sessions"] = "ask_sessions"


class AskMetrics(Message):
    kind: Literal["ask_metrics"] = "ask_metrics"


class Started(Message):
    kind: Literal["started"] = "started"
    ready: Ready


class Failed(Message):
    """It cannot start; one sentence says why."""

    kind: Literal["failed"] = "failed"
    sentence: str


class Holding(Message):
    kind: Literal["holding"] = "holding"
    sessions: frozenset[str]


class Closed(Message):
    """A client has closed a session at the worker's own endpoint."""

    kind: Literal["closed"] = "closed"
    session_id: str


class MetricsPage(Message):
    kind: Literal["metrics_page"] = "metrics_page"
    text: str
    """In Prometheus' text format."""


ToWorker = Assignment | AskSessions | AskMetrics
ToFront = Started | Failed | Holding | Closed | MetricsPage

TO_WORKER: TypeAdapter[ToWorker] = TypeAdapter(Annotated[ToWorker, Field(discriminator="kind")])
TO_FRONT: TypeAdapter[ToFront] = TypeAdapter(Annotated[ToFront, Field(discriminator="kind")])
