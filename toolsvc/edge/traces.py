"""The service's own span of each call, beneath the engine's.

No extra field travels for it: the span's ids derive from the call's id and the session's owner
(`toolwright.tracing.ids`). By the contract a call's id begins with a trajectory's name and a slash;
a call with any other id has no span.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from toolsvc.errors import StartError
from toolsvc.host.watch import Watch
from toolsvc.types import Recorded, SessionInfo
from toolwright.tracing.exporter import Exporter
from toolwright.tracing.ids import call_span, span_id, trace_id, trajectory_of
from toolwright.tracing.settings import CollectorUnclear, collector_of
from toolwright.tracing.spans import Span, short

PROCESS = "toolsvc"
_NS = 1_000_000_000


class CallSpans(Watch):
    """Exports a span for every call that has a result."""

    def __init__(self, exporter: Exporter) -> None:
        self._exporter = exporter

    def call_ended(self, session: SessionInfo, call_id: str, recorded: Recorded) -> None:
        if "/" not in call_id:
            return
        owner, now = session.owner, time.time_ns()
        error = recorded.result.error
        self._exporter.offer(
            [
                Span(
                    trace=trace_id(owner, trajectory_of(call_id)),
                    id=span_id(owner, call_id, PROCESS),
                    parent=call_span(owner, call_id),
                    name=f"{PROCESS} {short(recorded.tool) or 'unknown'}",
                    start_ns=now - round((recorded.queued + recorded.run) * _NS),
                    end_ns=now,
                    process=PROCESS,
                    attributes={
                        "toolwright.call": short(call_id),
                        "toolwright.session": short(session.session_id),
                        "toolwright.queued_s": recorded.queued,
                        "toolwright.run_s": recorded.run,
                        "toolwright.valid": recorded.result.valid,
                        "toolwright.isolation": recorded.isolation,
                    },
                    error="" if error is None else error.kind.name.lower(),
                )
            ]
        )


@contextmanager
def call_spans(told: str) -> Iterator[Exporter | None]:
    """The exporter within the block; None if `--traces` is not set. told: value of `--traces`.
    Raises StartError."""
    try:
        collector = collector_of(told, os.environ)
    except CollectorUnclear as error:
        raise StartError(str(error)) from error
    if collector is None:
        yield None
        return
    exporter = Exporter(collector, process=PROCESS)
    try:
        yield exporter
    finally:
        exporter.close()
