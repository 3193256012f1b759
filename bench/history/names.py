"""The names inside a history: call ids, attempts, trajectories, groups, sessions."""

from __future__ import annotations

import re
from typing import NamedTuple

from bench.history.findings import HistoryError
from toolwright.types import WeightVersion

_SESSION = re.compile(r"([^/@~]+/[^/@~]+)(?:[@~][^/]*)?\Z")

_EVALUATION = re.compile(r"e([^/]+?\.\d+)\.")


class CallName(NamedTuple):
    """The parts of a call id, ATTEMPT/TURN/INDEX."""

    attempt: str
    turn: int
    number: int


def call_name(call_id: str) -> CallName:
    """Raises HistoryError for anything but ATTEMPT/TURN/INDEX."""
    attempt, turn, index = (["", *call_id.rsplit("/", 2)])[-3:]
    if not (attempt and _is_number(turn) and _is_number(index)):
        raise HistoryError(f"the call id {call_id[:80]!r} is not ATTEMPT/TURN/INDEX")
    return CallName(attempt, int(turn), int(index))


def trajectory_of(attempt: str) -> str:
    """'g0000012-3' of 'g0000012-3/b1r0a0'."""
    return attempt.partition("/")[0]


def group_of(trajectory: str) -> str:
    """'g0000012' of 'g0000012-3' and of 'g0000012-3/b1r0a0'."""
    return trajectory_of(trajectory).rpartition("-")[0]


def member_index(trajectory: str) -> int:
    """3 of 'g0000012-3'; -1 where the name has no number."""
    index = trajectory.rpartition("-")[2]
    return int(index) if _is_number(index) else -1


def attempt_of_session(session: str) -> str:
    """'g0000012-3/b1r0a0' of the engine's 'OWNER/g0000012-3/b1r0a0@b1' and '…/b1r0a0~2@b1'; ""
    for a name that no engine gives."""
    found = _SESSION.search(session[-400:])
    return found[1] if found else ""


def evaluated_version(attempt: str) -> WeightVersion | None:
    """b.1 of 'eb.1.held-0/b1p0t0a0', the weights that an evaluation measures; None for others."""
    found = _EVALUATION.match(attempt)
    return WeightVersion.parse(found[1]) if found else None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 10
