from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bench.history.events import Fate, History, Planned, Restored, Trained
from bench.history.members import member_of
from bench.history.run_folder import (
    evaluations,
    positions,
    stored_hashes,
    surviving,
)
from engine.serving.evaluation.results import rows_file
from engine.serving.journal import groups
from engine.serving.journal.groups import Fate as StoredFate
from engine.serving.journal.logs import LogState
from engine.serving.journal.schema import FILE_NAME, open_database
from tests.support.histories import A0, A1
from tests.support.recorded_runs import CALL, VERSION, Recorded

pytestmark = pytest.mark.quick


def test_every_fate_is_read_from_the_journal(tmp_path: Path) -> None:
    with closing(open_database(tmp_path / FILE_NAME)) as db:
        for position in (0, 1, 2, 5):
            groups.add(
                db,
                position=position,
                identity=f"g{position:07d}",
                members=[b"one", b"other"],
                attempts=[f"g{position:07d}-{index}/b0r0a0" for index in range(2)],
                versions=[A0],
                fate=StoredFate.TURNED_AWAY if position == 2 else StoredFate.OFFERED,
            )
        groups.drop(db, 2)
        db.execute("INSERT INTO skipped VALUES (3, 'no question')")
        logs = [
            ("g0000000-0/b0r0a0", LogState.GIVEN_UP),
            ("g0000000-0/b1r0a0", LogState.COMPLETE),
            ("g0000000-1/b0r0a0", LogState.COMPLETE),
            ("g0000004-1/b1r0a0", LogState.OPEN),
            ("g0000003-0/b0r0a0", LogState.GIVEN_UP),
        ]
        db.executemany(
            "INSERT INTO logs VALUES (?, ?, ?, ?, 0.0, 1, '[]')",
            [
                (number, name.partition("/")[0], name, int(state))
                for number, (name, state) in enumerate(logs, 1)
            ],
        )
    found = positions(tmp_path, at=3.0, trained={1})
    assert [(one.position, one.group, one.fate, one.sequence) for one in found] == [
        (0, "g0000000", Fate.TRAINED, 1),
        (1, "g0000001", Fate.DROPPED, 2),
        (2, "g0000002", Fate.TURNED_AWAY, 3),
        (3, "g0000003", Fate.SKIPPED, None),
        (4, "g0000004", Fate.PENDING, None),
        (5, "g0000005", Fate.PENDING, 4),
    ]
    assert [one.reason for one in found] == ["", "stale", "", "no question", "", ""]
    assert found[0].attempts == (
        ("g0000000-0/b0r0a0", "g0000000-0/b1r0a0"),
        ("g0000000-1/b0r0a0",),
    )
    assert found[4].attempts == ((), ("g0000004-1/b1r0a0",))
    assert {one.at for one in found} == {3.0}
    assert sorted(stored_hashes(tmp_path)) == [1, 2, 3, 4]


def test_a_record_becomes_a_member(tmp_path: Path) -> None:
    record = Recorded(tmp_path).trajectory()
    found = member_of(record)
    assert (found.trajectory, found.attempt, found.masked) == ("g0-0", "g0-0/a", False)
    assert (found.calls, found.actions) == ((CALL.call_id,), (CALL.action,))
    assert [(one.author, one.turn, one.version, one.trainable) for one in found.segments] == [
        ("PROMPT", 0, None, False),
        ("MODEL", 0, VERSION, True),
        ("TOOL", 0, None, False),
        ("MODEL", 1, VERSION, True),
    ]
    assert member_of(record, "g0-0/b").attempt == "g0-0/b"


def test_an_abandoned_step_does_not_survive() -> None:
    history: History = [
        Planned(at=0, eta=0, batch=1, group_size=1, steps=3),
        Trained(at=1, lineage="a", step=1, sequences=(1,)),
        Trained(at=2, lineage="a", step=2, sequences=(2,)),
        Restored(at=3, lineage="a", step=1),
        Trained(at=4, lineage="b", step=2, sequences=(3,)),
    ]
    assert surviving(history) == {1, 3}


@pytest.mark.parametrize(
    ("rows", "n", "expected"),
    [
        ([{}, {}, {}], 3, (3, (A0,))),
        ([{}, {"errored": "gone", "versions": ["a.1"]}, {}], 3, (3, (A0,))),
        ([{}, {}, {"versions": ["a.0", "a.1"]}], 3, (3, (A0, A1))),
        ([{}, {}], 3, (2, (A0,))),
        ([{}, {}, {}], 2, (2, (A0,))),
    ],
)
def test_an_evaluation_is_what_its_rows_say(
    tmp_path: Path, rows: list[dict[str, Any]], n: int, expected: tuple[Any, ...]
) -> None:
    summary = {"suite": "held", "lineage": "a", "step": 0, "asked": 3, "n": n}
    (tmp_path / "evaluations.jsonl").write_text(
        json.dumps({**summary, "errored": 0, "bad_rows": 0}) + "\n", encoding="utf-8"
    )
    file = rows_file(tmp_path, "held", "a.0")
    file.parent.mkdir()
    file.write_text(
        "".join(
            json.dumps({"index": index, "versions": ["a.0"], **row}) + "\n"
            for index, row in enumerate(rows)
        ),
        encoding="utf-8",
    )
    (found,) = evaluations(tmp_path, at=1.0)
    assert (found.suite, found.version, found.expected_rows) == ("held", A0, 3)
    assert (found.rows, found.wrote) == expected
