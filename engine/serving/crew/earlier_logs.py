"""Logs of attempts that go on: after a restart of the engine, or after the death of a worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import structlog

from engine.core.trajectory.log import AttemptLog, Keeper, before
from engine.serving.journal.logs import OpenLog

log = structlog.get_logger("scheduler")


def earlier_logs(
    found: Mapping[str, OpenLog], keeper: Keeper, forget: Callable[[str], None]
) -> dict[str, AttemptLog]:
    """The logs by trajectory. Logs that belong to no attempt are given up. found: by trajectory; a
    log that begins inside another one needs that one too."""
    logs = {one.attempt: one.events for one in found.values()}
    earlier = {}
    for trajectory_id, one in found.items():
        try:
            start = before(one.events, logs)
            earlier[trajectory_id] = AttemptLog(one.attempt, keeper, one.events, start=start)
        except ValueError as error:  # LogError, or tokens and log-probs that do not fit
            log.warning("log_refused", attempt=one.attempt, error=str(error))
            forget(one.attempt)
    return earlier
