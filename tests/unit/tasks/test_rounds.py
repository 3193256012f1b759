"""Rounds without end: all of a list once, then all again in another order."""

from __future__ import annotations

import random
from itertools import count, islice

from tasks.worlds.rounds import in_turn, rounds


def test_every_round_has_all_of_them_in_an_order_of_its_own() -> None:
    found = list(islice(rounds(range(20), random.Random(1)), 60))
    parts = [found[:20], found[20:40], found[40:]]
    assert all(sorted(one) == list(range(20)) for one in parts)
    assert parts[0] != parts[1] != parts[2]
    assert list(islice(rounds(range(20), random.Random(1)), 60)) == found


def test_nothing_has_no_rounds() -> None:
    assert list(rounds([], random.Random(1))) == []


def test_streams_take_turns_until_one_ends() -> None:
    assert list(in_turn(iter("abc"), map(str, count()))) == ["a", "0", "b", "1", "c", "2"]
