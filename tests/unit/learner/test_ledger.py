"""The ledger: at most once, and the same after a round trip."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from learner.intake.ledger import Ledger, Verdict
from toolwright.types import (
    WeightVersion,
)

V = WeightVersion(lineage="a1b2c3d4", step=7)


def test_a_group_is_consumed_once() -> None:
    ledger = Ledger()
    ledger.consume(sequence_number=4, group="g", content_hash="x", version=V)
    assert ledger.mark == 4
    assert ledger.judge("g", "x") is Verdict.DUPLICATE
    assert ledger.judge("g", "y") is Verdict.CONFLICT
    assert ledger.judge("h", "x") is Verdict.NEW
    with pytest.raises(ValueError, match="consumed before"):
        ledger.consume(sequence_number=9, group="g", content_hash="x", version=V)


def test_a_copy_knows_nothing_of_what_came_after() -> None:
    """A stop in mid-lease takes the copy back: the groups are offered again, and are new."""
    ledger = Ledger()
    ledger.consume(sequence_number=1, group="g", content_hash="x", version=V)
    before = ledger.copy()
    ledger.consume(sequence_number=2, group="h", content_hash="y", version=V)
    assert (before.mark, len(before.entries)) == (1, 1)
    assert before.judge("g", "x") is Verdict.DUPLICATE
    assert before.judge("h", "y") is Verdict.NEW


def test_the_mark_never_moves_back() -> None:
    ledger = Ledger()
    ledger.pass_over(5)
    ledger.pass_over(3)
    assert ledger.mark == 5


def test_what_is_acknowledged_is_one_number() -> None:
    ledger = Ledger()
    for number in range(1, 1001):
        ledger.consume(sequence_number=number, group=f"g{number}", content_hash="x", version=V)
        if number % 100 == 0:
            ledger.settle(number)
            assert len(ledger.dump()) < 100
    ledger.consume(sequence_number=1002, group="last", content_hash="x", version=V)
    assert (ledger.settled, ledger.acknowledged, ledger.mark) == (1000, 1000, 1002)
    again = Ledger.parse(ledger.dump())
    assert again == ledger
    assert again.judge("last", "x") is Verdict.DUPLICATE


def test_a_ledger_of_before_is_read() -> None:
    old = Ledger.parse('{"mark": 7}\n')
    assert (old.mark, old.acknowledged, old.settled) == (7, 0, 0)


@given(st.lists(st.tuples(st.integers(0, 99), st.text(max_size=5)), unique_by=lambda x: x[1]))
def test_round_trip(groups: list[tuple[int, str]]) -> None:
    ledger = Ledger()
    for number, name in groups:
        ledger.consume(sequence_number=number, group=name, content_hash=name[::-1], version=V)
    again = Ledger.parse(ledger.dump())
    assert again == ledger
    assert all(again.judge(name, name[::-1]) is Verdict.DUPLICATE for _, name in groups)
