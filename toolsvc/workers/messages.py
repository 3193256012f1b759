"""What supervisor and worker say to each other: JSON, one message a line, over the worker's
standard input and output.

Supervisor to worker: `Assignment` once, then `Membership` whenever it changes and `AskMetrics`.
Worker to supervisor: `Ready` or `Failed` once, then a `MetricsPage` for every `AskMetrics`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from toolsvc.serving import ServiceConfig
from toolsvc.workers.placement import View

LONGEST_LINE = 16 << 20
"""Bytes; a page of metrics is the longest message, far below."""


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
    public: str
    """The service's address, shared with the siblings; "" = left to another worker."""
    link: str
    """Where its siblings reach it."""
    advertise: str
    """Host by which clients reach it; "" = as it listens."""


class Membership(Message):
    kind: Literal["membership"] = "membership"
    view: View


class AskMetrics(Message):
    kind: Literal["ask_metrics"] = "ask_metrics"


class Ready(Message):
    """It listens, and answers once it was told a view."""

    kind: Literal["ready"] = "ready"
    endpoint: str
    tools: tuple[str, ...]
    isolation: str


class Failed(Message):
    """It cannot start; one sentence says why."""

    kind: Literal["failed"] = "failed"
    sentence: str


class MetricsPage(Message):
    kind: Literal["metrics_page"] = "metrics_page"
    text: str
    """In Prometheus' text format."""


ToWorker = Assignment | Membership | AskMetrics
ToSupervisor = Ready | Failed | MetricsPage

TO_WORKER: TypeAdapter[ToWorker] = TypeAdapter(Annotated[ToWorker, Field(discriminator="kind")])
TO_SUPERVISOR: TypeAdapter[ToSupervisor] = TypeAdapter(
    Annotated[ToSupervisor, Field(discriminator="kind")]
)
