"""Logs of attempts that go on: after a restart of the engine, or after the death of a worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import structlog

from engine.core.trajectory.events import decode, encode
from engine.core.trajectory.log import AttemptLog, Keeper, before
from engine.serving.journal.logs import OpenLog
from toolwright.crew.v1 import crew_pb2 as pb
from toolwright.rpc.options import PIECE_BYTES

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


def pieces_of(assignment: int, logs: Mapping[str, OpenLog]) -> Iterator[pb.EarlierLog]:
    """The logs in pieces for a worker: together they may exceed a message. logs: by trajectory."""
    for trajectory, one in logs.items():
        events = encode(one.events)
        for at in range(0, len(events), PIECE_BYTES):
            yield pb.EarlierLog(
                trajectory=trajectory,
                attempt=one.attempt,
                events=events[at : at + PIECE_BYTES],
                assignment=assignment,
                offset=at,
            )


@dataclass(slots=True)
class _Joined:
    attempt: str
    events: bytearray = field(default_factory=bytearray)


class ArrivingLogs:
    """Logs that arrive in pieces, by assignment. A new stream may repeat any piece."""

    def __init__(self) -> None:
        self._logs: dict[int, dict[str, _Joined]] = {}

    def take(self, piece: pb.EarlierLog) -> None:
        """Joins a piece to its log."""
        logs = self._logs.setdefault(piece.assignment, {})
        one = logs.setdefault(piece.trajectory, _Joined(piece.attempt))
        del one.events[piece.offset :]
        one.events += piece.events

    def pop(self, assignment: int) -> dict[str, OpenLog]:
        """The logs of an assignment, by trajectory. They are complete when it arrives."""
        return {
            trajectory: OpenLog(attempt=one.attempt, events=decode(bytes(one.events)))
            for trajectory, one in self._logs.pop(assignment, {}).items()
        }
