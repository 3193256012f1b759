"""Delta debugging on plain lists."""

from __future__ import annotations

import pytest

from bench.simulate.shrink import shrunk

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    "needed",
    [(), (3,), (0, 9), (2, 3, 7), tuple(range(10))],
    ids=["nothing", "one", "both ends", "three", "all"],
)
def test_only_what_a_failure_needs_is_left(needed: tuple[int, ...]) -> None:
    found = shrunk(tuple(range(10)), lambda some: set(needed) <= set(some))
    assert found == needed


def test_the_order_is_kept() -> None:
    assert shrunk((5, 1, 4, 2), lambda some: {5, 2} <= set(some)) == (5, 2)


def test_tries_are_bounded_and_what_is_left_still_fails() -> None:
    tries = 0

    def fails(some: tuple[int, ...]) -> bool:
        nonlocal tries
        tries += 1
        return {10, 50} <= set(some)

    found = shrunk(tuple(range(100)), fails, most=7)
    assert tries == 7
    assert {10, 50} <= set(found)
