"""What bad rows cost: each its own position, too many the run."""

from __future__ import annotations

from engine.core.images.media import Media
from engine.core.tasks import BadRow, BadRows, DrawnTask
from toolwright.types import Task


def bad(number: int, kind: str = "images", *, epoch: int = 0) -> BadRow:
    return BadRow(
        position=number + 100 * epoch,
        task_id=f"q{number}",
        kind=kind,
        reason="a.png is gone",
        where=f"d.jsonl:{number}",
    )


def test_a_row_counts_once_however_often_it_comes() -> None:
    rows = BadRows(3)
    assert [rows.add(bad(1)), rows.add(bad(1, epoch=1)), rows.add(bad(2))] == [True, False, True]
    assert rows.count == 2


def test_one_more_than_the_bound_ends_the_run() -> None:
    rows = BadRows(2)
    for number in (1, 2):
        rows.add(bad(number))
        assert not rows.exceeded
    rows.add(bad(3, "template"))
    assert rows.exceeded
    for fact in ("3 rows", "max_bad_rows = 2", "2 images, 1 template", "d.jsonl:3: a.png is gone"):
        assert fact in rows.sentence()
    assert BadRows(0).exceeded is False


def test_a_task_that_turns_out_to_be_unfit_keeps_its_place() -> None:
    media: tuple[Media, ...] = ()
    drawn = DrawnTask(position=7, task=Task(id="q"), media=media, where="d.jsonl:8")
    row = drawn.refused("template", "no system message")
    assert (row.position, row.task_id, row.kind) == (7, "q", "template")
    assert str(row) == "d.jsonl:8: no system message"
    assert str(DrawnTask(position=7, task=Task(id="q")).refused("k", "r")) == "task q: r"
