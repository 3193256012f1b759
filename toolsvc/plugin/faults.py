"""Faults of plugins and of what they work with, logged once for each place: a policy may make the
same one all day."""

from __future__ import annotations

import traceback

import structlog

_FRAMES = 12
_TRACEBACK_CHARS = 8_000
_MOST_PLACES = 256
_LOGGED: set[tuple[str, str, int]] = set()
"""Whose, in which file and line."""

log = structlog.get_logger(__name__)


def log_fault(whose: str, error: Exception) -> None:
    """For the plugin's author, who has to find the line; the policy reads the message at most.
    `whose`: the tool's or the backend's."""
    where = traceback.extract_tb(error.__traceback__, limit=-1)[-1]
    place = (whose, where.filename, where.lineno or 0)
    if place in _LOGGED or len(_LOGGED) >= _MOST_PLACES:
        return
    _LOGGED.add(place)
    text = "".join(traceback.format_exception(error, limit=-_FRAMES))
    log.warning("tool raised", tool=whose, exception=text[-_TRACEBACK_CHARS:])
