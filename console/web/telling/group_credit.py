"""The credit of a journaled trajectory: its group and the run's recipe, read for `credit`."""

from __future__ import annotations

import math
import sqlite3
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from console.record.resolved import read_resolved
from console.web.index.segments import own_segments
from console.web.index.sources import JOURNAL, STRANGE, open_journal
from console.web.telling.credit import Formula, Member, credit_of
from toolwright.common.v1 import trajectory_pb2 as pb
from toolwright.credit.turns import turn_rewards
from toolwright.reading.sqlite_files import typed_rows

MOST_BYTES = 64 << 20
"""Maximum size of a group's records, in bytes: all of them are read for one page."""
MOST_TURNS = 10_000
LARGEST_REWARD = 3.4e38
"""Where a reward is larger, or none, the learner leaves the trajectory out of its group."""


def group_credit(folder: Path, sequence: int, number: int, *, trained: bool) -> dict[str, Any]:
    """As `credit_of`, of the member `number` of a group. trained: the learner got the group. Where
    the group cannot be read, that is said in "why"."""
    try:
        members = _members(folder / JOURNAL, sequence)
    except (sqlite3.Error, DecodeError, *STRANGE) as error:
        return _unknown(f"The group cannot be read, so advantages are not known: {error}")
    if number not in members:
        return _unknown("The group is too large to be read for its advantages.")
    formula = Formula.of(read_resolved(folder).get("learner"))
    place = sorted(members).index(number)
    group = [members[one] for one in sorted(members)]
    return credit_of(group, place, formula, trained=trained)


def member_of(message: pb.Trajectory) -> Member:
    """A record as far as credit goes."""
    written = [segment for segment in own_segments(message) if segment.author == pb.AUTHOR_MODEL]
    turns = min(max((segment.turn + 1 for segment in written), default=0), MOST_TURNS)
    parts = [
        (part.turn if part.HasField("turn") else None, part.value) for part in message.reward_parts
    ]
    values = (message.reward, *(value for _, value in parts))
    return Member(
        reward=message.reward,
        turn_rewards=tuple(turn_rewards(turns, parts)),
        anchors={one.turn: tuple(one.ids) for one in message.anchors},
        tokens=sum(segment.token_count for segment in written),
        masked=message.masked,
        in_baseline=not message.outside_baseline,
        data_source=message.task.data_source,
        finite=all(math.isfinite(value) and abs(value) <= LARGEST_REWARD for value in values),
    )


def _members(file: Path, sequence: int) -> dict[int, Member]:
    """By number; none of a group that is too large."""
    with open_journal(file) as db:
        (size,) = db.execute(
            "SELECT total(length(trajectory)) FROM members WHERE sequence = ?", (sequence,)
        ).fetchone()
        if size > MOST_BYTES:
            return {}
        found = db.execute(
            "SELECT number, trajectory FROM members WHERE sequence = ?", (sequence,)
        ).fetchall()
    return {
        number: member_of(pb.Trajectory.FromString(data))
        for number, data in typed_rows(found, int, bytes)
    }


def _unknown(why: str) -> dict[str, Any]:
    return {"advantage": None, "formula": "", "why": why, "turns": []}
