"""Logs that go on at another worker travel in pieces that no message limit stops."""

from __future__ import annotations

import pytest

from engine.core.trajectory.events import Ended, Noted
from engine.serving.crew.earlier_logs import ArrivingLogs, pieces_of
from engine.serving.journal.logs import OpenLog
from toolwright.rpc.options import MESSAGE_LIMIT, PIECE_BYTES
from toolwright.types import Event, StopReason

pytestmark = pytest.mark.quick

WORD = "x" * (MESSAGE_LIMIT // 4)


def log_of(attempt: str, *words: str) -> OpenLog:
    notes = [Noted(note=Event(kind=word, turn=0, data={})) for word in words]
    return OpenLog(attempt=attempt, events=[*notes, Ended(reason=StopReason.ANSWERED)])


def test_logs_larger_than_a_message_arrive_whole_after_a_broken_stream() -> None:
    logs = {"g-0": log_of("g-0/a", WORD, WORD, WORD), "g-1": log_of("g-1/a", WORD, WORD, "y")}
    pieces = list(pieces_of(7, logs))
    assert sum(piece.ByteSize() for piece in pieces) > MESSAGE_LIMIT
    assert max(piece.ByteSize() for piece in pieces) < PIECE_BYTES + 1024
    arriving = ArrivingLogs()
    for piece in [*pieces[: len(pieces) // 2], *pieces]:
        arriving.take(piece)
    assert arriving.pop(8) == {}
    assert arriving.pop(7) == logs
    assert arriving.pop(7) == {}
