"""Logs that an earlier engine wrote fold to the records that it made of them.

`old_logs.json` is never written anew: a log that later code cannot read is a run that it cannot
resume. A new kind of event, or a new field, gets another entry.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from engine.core.trajectory.events import decode
from engine.core.trajectory.record import record
from engine.core.trajectory.state import fold
from tests.unit.engine.test_state import IDENTITY
from toolwright.common.v1 import trajectory_pb2
from toolwright.wire import trajectory_from_proto

pytestmark = pytest.mark.quick

LOGS = json.loads(Path(__file__).with_name("old_logs.json").read_text(encoding="utf-8"))
KINDS = {
    "opened", "streamed", "acted", "called", "answered", "appended", "noted", "forked", "ended",
    "scored", "begun", "asked", "replied", "dropped", "rewarded",
}  # fmt: skip


def test_every_kind_of_event_is_in_an_old_log() -> None:
    found = {
        type(event).__name__.lower()
        for one in LOGS
        for event in decode(base64.b64decode(one["log"]))
    }
    assert found == KINDS


@pytest.mark.parametrize("one", LOGS, ids=range(len(LOGS)))
def test_an_old_log_folds_to_the_record_of_its_day(one: dict[str, str]) -> None:
    events = decode(base64.b64decode(one["log"]))
    stored = trajectory_pb2.Trajectory.FromString(base64.b64decode(one["record"]))
    assert record(fold(events), IDENTITY) == trajectory_from_proto(stored)
