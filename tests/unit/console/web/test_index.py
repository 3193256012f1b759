"""The index holds what the run's files hold, whatever happens to these, and finds it again."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from console.web.index import queries
from console.web.index.entries import LONGEST_TEXT, of_trajectory
from console.web.index.flips import flips
from console.web.index.index import Index
from console.web.index.queries import BadQuestion, Question
from console.web.index.schema import open_index
from console.web.index.types import Place
from console.web.telling.tokens import Spellings
from tests.support.recorded_runs import ANSWER, CALL, Recorded
from toolwright import types as t
from toolwright.trajectory_files import write_trajectories
from toolwright.wire import serialize, trajectory_to_proto


@pytest.fixture
def run(tmp_path: Path) -> Recorded:
    return Recorded(tmp_path / "run")


@pytest.fixture
def index(run: Recorded, tmp_path: Path) -> Index:
    return Index(run.folder, tmp_path / "index.sqlite", Spellings(run.folder).decoder)


def brought_up(index: Index) -> Index:
    while index.refresh():
        pass
    return index


def names(index: Index, **question: Any) -> list[str]:
    found = queries.page(index.file, Question(descending=False, **question))
    return [row["name"] for row in found.rows]


def test_a_journaled_trajectory_is_listed_with_its_figures(run: Recorded, index: Index) -> None:
    run.journal([run.trajectory("g0-0"), run.trajectory("g0-1", reward=0.25)])
    found = queries.page(brought_up(index).file, Question(sort="reward"))
    assert found.total == 2
    assert found.rows[0] == {
        "name": "g0-0", "family": "g0", "suite": "training", "kind": "training", "step": 3,
        "reward": 1.0, "stop": "answered", "status": "completed", "masked": False, "turns": 2,
        "calls": 1, "failed": 0, "tokens": len(CALL.action) + len(ANSWER), "seconds": 1.5,
        "task": "task-0", "question": "What is 6 times 7?", "answer": ANSWER, "tools": ["python"],
    }  # fmt: skip
    assert [one["name"] for one in queries.group(index.file, "g0")] == ["g0-0", "g0-1"]


def test_a_run_that_grows_is_read_from_where_it_was(run: Recorded, index: Index) -> None:
    run.journal([run.trajectory("g0-0")])
    brought_up(index)
    generation = index.generation
    brought_up(index)
    assert index.generation == generation
    run.journal([run.trajectory("g1-0")], [run.trajectory("g2-0")])
    assert names(brought_up(index)) == ["g0-0", "g1-0", "g2-0"]
    assert index.generation > generation


def test_a_journal_that_was_begun_anew_is_read_anew(run: Recorded, index: Index) -> None:
    run.journal([run.trajectory("g0-0")], [run.trajectory("g1-0")])
    brought_up(index)
    for file in run.folder.glob("journal.sqlite*"):
        file.unlink()
    run.journal([run.trajectory("g7-0")], owner="another")
    assert names(brought_up(index)) == ["g7-0"]


def test_a_broken_record_costs_itself(run: Recorded, index: Index) -> None:
    good = serialize(trajectory_to_proto(run.trajectory("g0-0")))
    run.journal_bytes([good, b"\xff\xff\xff", good[: len(good) // 2]], names=["g0"])
    assert names(brought_up(index)) == ["g0-0"]
    assert "2 records are broken" in " ".join(index.remarks)


@pytest.mark.parametrize("content", [b"", b"no database at all" * 99, b"SQLite format 3\0" * 99])
def test_a_broken_journal_is_a_remark(run: Recorded, index: Index, content: bytes) -> None:
    (run.folder / "journal.sqlite").write_bytes(content)
    run.rows("held", 0, [{"index": 1}])
    assert names(brought_up(index)) == ["held@ab.0/1"]
    assert "journal.sqlite cannot be read" in " ".join(index.remarks)


def test_a_journal_of_another_format_is_said(run: Recorded, index: Index) -> None:
    run.journal([run.trajectory()])
    with sqlite3.connect(run.folder / "journal.sqlite") as db:
        db.execute("PRAGMA user_version=77")
    assert names(brought_up(index)) == []
    assert "format 77" in " ".join(index.remarks)


@pytest.mark.parametrize("old", [False, True])
def test_an_index_that_is_spoilt_or_of_another_version_is_made_again(
    run: Recorded, index: Index, old: bool
) -> None:
    run.journal([run.trajectory("g0-0")])
    brought_up(index).close()
    if old:
        with sqlite3.connect(index.file) as db:
            db.execute("PRAGMA user_version=99")
    else:
        index.file.write_bytes(b"spoilt" * 4096)
    again = Index(run.folder, index.file, Spellings(run.folder).decoder)
    assert not open_index(index.file).execute("SELECT count(*) FROM rows").fetchone()[0]
    assert names(brought_up(again)) == ["g0-0"]


def test_a_sample_joins_the_figures_of_its_question_in_either_order(
    run: Recorded, index: Index
) -> None:
    said = [("prompt", "<|im_start|>user\nHow many?<|im_end|>"), ("model", "seven zebras")]
    run.rows("held", 5, [{"index": 0, "reward": 0.5, "calls": 2}])
    brought_up(index)
    run.sample("held", 5, 0, *said)
    run.sample("held", 6, 0, *said)
    brought_up(index)
    run.rows("held", 6, [{"index": 0, "reward": 0.75, "calls": 3}])
    brought_up(index)
    rows = queries.page(index.file, Question(text="zebras", sort="step", descending=False)).rows
    assert [(one["step"], one["reward"], one["calls"]) for one in rows] == [
        (5, 0.5, 2),
        (6, 0.75, 3),
    ]
    assert rows[0]["question"] == "How many?"
    assert [one["name"] for one in queries.group(index.file, "held/0")] == [
        "held@ab.5/0",
        "held@ab.6/0",
    ]


def test_a_row_that_errored_is_replaced_by_the_one_that_was_measured(
    run: Recorded, index: Index
) -> None:
    rows = [{"reward": 0, "errored": "the sampler was away"}, {"reward": 0.5}, {"reward": 0.9}]
    run.rows("held", 0, [{"index": 0, **row} for row in rows])
    (row,) = queries.page(brought_up(index).file, Question()).rows
    assert row["reward"] == 0.5


def test_lines_that_are_none_cost_themselves(run: Recorded, index: Index) -> None:
    file = run.rows("held", 0, [{"index": 0}])
    with file.open("ab") as opened:
        opened.write(b"{cut\n[]\n\xff\xfe\n" + b'"' + b"x" * (5 << 20) + b"\n" + b'{"suite": 7}\n')
    run.rows("held", 0, [{"index": 1}])
    assert names(brought_up(index)) == ["held@ab.0/0", "held@ab.0/1"]
    assert "are broken and left out" in " ".join(index.remarks)


def test_a_recording_is_listed_and_what_is_behind_a_cut_is_not(run: Recorded, index: Index) -> None:
    file = run.folder / "demonstrations.trajectories"
    write_trajectories(file, [run.trajectory("d-0"), run.trajectory("d-1")])
    file.write_bytes(file.read_bytes()[:-5])
    assert names(brought_up(index)) == ["demonstrations/0"]
    assert "is cut behind byte" in " ".join(index.remarks)


def test_a_named_pipe_among_the_files_is_left_alone(run: Recorded, index: Index) -> None:
    import os

    os.mkfifo(run.folder / "x.trajectories")
    assert names(brought_up(index)) == []


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), -1e308])
def test_a_reward_that_is_no_number_comes_last(run: Recorded, index: Index, reward: float) -> None:
    run.journal([run.trajectory("g0-0", reward=reward), run.trajectory("g0-1", reward=-5.0)])
    assert names(brought_up(index), sort="reward") == ["g0-0", "g0-1"]
    assert names(index, reward_from=-10.0) == ["g0-1"]


@pytest.mark.parametrize("sort", list(queries.SORTS))
@pytest.mark.parametrize("descending", [True, False])
def test_pages_together_are_every_row_once(
    run: Recorded, index: Index, sort: str, descending: bool
) -> None:
    rewards = [0.0, 1.0, float("nan"), 1.0, 0.1 + 0.2]
    run.journal(
        *(
            [run.trajectory(f"g{n}-0", reward=rewards[n % 5], calls=(CALL,) * (n % 3))]
            for n in range(23)
        )
    )
    brought_up(index)
    whole = Question(sort=sort, descending=descending, limit=100)
    expected = [row["name"] for row in queries.page(index.file, whole).rows]
    assert len(set(expected)) == 23
    found, after = [], ""
    while True:
        part = queries.page(index.file, replace(whole, limit=4, after=after))
        found += [row["name"] for row in part.rows]
        assert (part.total is None) == bool(after)
        if not (after := part.next):
            break
    assert found == expected


def test_filters_leave_what_they_say(run: Recorded, index: Index) -> None:
    failing = replace(
        CALL, tool="bash", outcome=replace(CALL.outcome, error=t.ToolErrorKind.CRASHED)
    )
    run.journal(
        [run.trajectory("g0-0"), run.trajectory("g0-1", calls=(CALL, failing))],
        [run.trajectory("g1-0", stop_reason=t.StopReason.MAX_TURNS, reward=-1.0)],
    )
    run.rows("held", 9, [{"index": 0}])
    brought_up(index)
    assert names(index, suite="training") == ["g0-0", "g0-1", "g1-0"]
    assert names(index, tool="bash") == ["g0-1"]
    assert names(index, failed=True) == ["g0-1"]
    assert names(index, stop="max_turns") == ["g1-0"]
    assert names(index, step_from=9) == ["held@ab.9/0"]
    assert names(index, reward_to=0.0) == ["g1-0"]
    assert names(index, family="g0", tool="python") == ["g0-0", "g0-1"]
    told = queries.choices(index.file)
    assert told["rows"] == 4
    assert told["steps"] == [3, 9]
    assert told["tools"] == [{"name": "bash", "rows": 1}, {"name": "python", "rows": 3}]


def test_the_search_knows_who_said_it(run: Recorded, index: Index) -> None:
    run.journal([run.trajectory("g0-0", wrote="the Größe of the café is 90% (print(x))")])
    brought_up(index)
    for text in ("café", "CAFE", "größ*", '"the café"', "print(x", "g0-0", "task-0", "90% café"):
        assert names(index, text=text) == ["g0-0"], text
    assert names(index, text="café", within="wrote") == ["g0-0"]
    assert names(index, text="café", within="read") == []
    assert names(index, text="times", within="question") == ["g0-0"]
    assert names(index, text='"café the"') == []
    assert names(index, text="giraffe") == []


@pytest.mark.parametrize(
    "text",
    ['"', '""', "(", "*", "a AND", "NEAR(", "-x", "{wrote} : x", "'; DROP TABLE rows; --", "\0",
     "^", "a:b", "\ud800", "%", "x" * 100_000, "OR OR OR", '"unclosed'],
)  # fmt: skip
def test_no_search_is_a_fault(run: Recorded, index: Index, text: str) -> None:
    run.journal([run.trajectory("g0-0")])
    assert names(brought_up(index), text=text) == []
    assert names(index) == ["g0-0"]


def test_a_search_that_takes_too_long_is_given_up(
    run: Recorded, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.journal([run.trajectory("g0-0")])
    brought_up(index)
    monkeypatch.setattr(queries, "PATIENCE_S", -1.0)
    monkeypatch.setattr(queries, "STEPS_A_LOOK", 1)
    with pytest.raises(BadQuestion, match="write whole words"):
        names(index, text="times")


@pytest.mark.parametrize("after", ["x", "e30=", "WzEsMl0", "////", "é", "W10="])
def test_a_false_end_of_a_page_is_a_bad_question(index: Index, after: str) -> None:
    with pytest.raises(BadQuestion, match="end of a page"):
        names(index, after=after)


def test_a_text_of_megabytes_is_searched_at_both_ends(run: Recorded) -> None:
    huge = "x" * (10 << 20)
    call = replace(CALL, outcome=replace(CALL.outcome, observation=f"alpha {huge} omega"))
    message = trajectory_to_proto(run.trajectory(calls=(call,)))
    place = Place(source="journal.sqlite", at=1)
    entry = of_trajectory(message, place, kind="training", suite="training", decode=lambda _: "")
    assert len(entry.texts.read) <= LONGEST_TEXT + 1
    assert entry.texts.read.startswith("alpha")
    assert entry.texts.read.endswith("omega")
    assert entry.texts.wrote.startswith(CALL.action), "actions stand in for tokens without a text"


def test_questions_that_changed_between_two_evaluations_are_found(
    run: Recorded, index: Index
) -> None:
    for step, rewards in ((0, (0.0, 1.0, 1.0, 0.5)), (3, (1.0, 0.0, 1.0, 0.75)), (9, (1.0,) * 4)):
        run.rows("held", step, [{"index": n, "reward": reward} for n, reward in enumerate(rewards)])
    run.rows("once", 0, [{"index": 0}])
    run.rows("held", 3, [{"index": 4, "errored": "down"}])
    run.rows("held", 0, [{"index": 4}])
    run.sample("held", 3, 1, ("prompt", "<|im_start|>user\nWhy?<|im_end|>\n"), ("model", "a"))
    file = brought_up(index).file
    found = flips(file, "held", None, 3)
    assert found["suites"] == [{"name": "held", "steps": [0, 3, 9]}]
    assert (found["rose"], found["fell"], found["same"]) == (2, 1, 1), "an error is no change"
    assert [(row["name"], row["other"]) for row in found["rows"]] == [
        (f"held@ab.0/{n}", f"held@ab.3/{n}") for n in (1, 0, 3)
    ]
    assert found["rows"][0]["question"] == "Why?"
    assert flips(file, "nothing", 7, 7)["after"] == 9
