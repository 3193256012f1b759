"""Logs exceptions of tools and backends, once for each line of code: a policy may repeat one all
day."""

from __future__ import annotations

import traceback

import structlog

from toolsvc.types import Call
from toolwright.tracing.ids import trace_id, trajectory_of

_FRAMES = 12
_TRACEBACK_CHARS = 8_000
_MOST_PLACES = 256
_LOGGED: set[tuple[str, str, int]] = set()
"""Places that were logged: the tool or backend, the file, the line."""

log = structlog.get_logger(__name__)


def log_fault(whose: str, error: Exception, call: Call | None = None) -> None:
    """Logs the traceback for the author; the policy reads the message at most. whose: the tool or
    the backend. call: the call that failed, so that the line names its trajectory and trace."""
    where = traceback.extract_tb(error.__traceback__, limit=-1)[-1]
    place = (whose, where.filename, where.lineno or 0)
    if place in _LOGGED or len(_LOGGED) >= _MOST_PLACES:
        return
    _LOGGED.add(place)
    text = "".join(traceback.format_exception(error, limit=-_FRAMES))
    names = {}
    if call is not None:
        trace = trace_id(call.session.owner, trajectory_of(call.call_id))
        names = {"call": call.call_id, "trace": trace}
    log.warning("tool raised", tool=whose, **names, exception=text[-_TRACEBACK_CHARS:])
