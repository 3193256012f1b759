"""Faults of plugins and of what they work with, logged once for each place: a policy may make the
same one all day."""

from __future__ import annotations

import traceback

import structlog

from toolsvc.types import Call
from toolwright.tracing.ids import trace_id, trajectory_of

_FRAMES = 12
_TRACEBACK_CHARS = 8_000
_MOST_PLACES = 256
_LOGGED: set[tuple[str, str, int]] = set()
"""Whose, in which file and line."""

log = structlog.get_logger(__name__)


def log_fault(whose: str, error: Exception, call: Call | None = None) -> None:
    """For the plugin's author, who has to find the line; the policy reads the message at most.
    `whose`: the tool's or the backend's. `call`: in which it happened, so that the line leads to
    the trajectory and its trace."""
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
