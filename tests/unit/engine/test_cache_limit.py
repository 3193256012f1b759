"""The limit by the samplers' caches, with numbers alone."""

from __future__ import annotations

from random import Random

import pytest

from engine.serving.admission.cache_limit import (
    CUT,
    GROW,
    IDLE_WEIGHT,
    TRIM,
    CacheLimit,
    Turn,
)

pytestmark = pytest.mark.quick


def limit(*, capacity: int = 1000, most: int = 100, longest: int = 100) -> CacheLimit:
    made = CacheLimit(most=most, longest=longest)
    made.looked(capacity=capacity, queued=False)
    return made


def acts(
    one: CacheLimit, key: str, prompt: int, *, cached: int | None = 0, weights: str = "a.1",
    retractions: int = 0,
) -> None:  # fmt: skip
    one.asks(key, prompt)
    turn = Turn(prompt=prompt, tokens=0, cached=cached, weights=weights, retractions=retractions)
    one.acted(key, turn)


def looks(one: CacheLimit, *, queued: bool) -> None:
    for _ in range(200):
        one.looked(capacity=one.capacity, queued=queued)


def test_it_begins_with_what_fits_and_not_with_one() -> None:
    assert limit().limit() == pytest.approx(11, abs=1)
    assert limit(most=4).limit() == 4


def test_without_a_reported_size_only_the_most_bounds() -> None:
    one = CacheLimit(most=7, longest=100)
    for number in range(20):
        one.asks(f"g{number:02d}", 10_000)
    assert one.limit() == 7
    assert all(one.goes_on(f"g{number:02d}") for number in range(20))


def test_lost_tokens_show_an_unreported_size() -> None:
    one = CacheLimit(most=100, longest=100)
    for key in "abcd":
        acts(one, key, 100)
    for key in "abcd":
        acts(one, key, 120, cached=0)
    one.step()
    assert one.capacity == 480


def test_a_size_that_lost_tokens_showed_grows_again() -> None:
    """One flush of the caches, as a server's restart makes, bounds nothing for ever."""
    one = CacheLimit(most=100, longest=100)
    for _ in range(2):
        for key in "ab":
            acts(one, key, 50)
    one.step()
    assert one.budget == 95  # trimmed once
    for _ in range(100):
        for key in "ab":
            acts(one, key, 500, cached=500)
            one.asks(key, 500)
        one.step()
    assert one.budget >= 1000


def test_the_oldest_go_on_and_the_others_wait_in_order() -> None:
    one = limit()
    for key in ("g3", "g1", "g4", "g2"):
        one.asks(key, 400)
    assert [one.goes_on(f"g{number}") for number in (1, 2, 3, 4)] == [True, True, True, False]
    one.ends("g1")
    assert one.goes_on("g4")


def test_the_oldest_goes_on_whatever_its_length() -> None:
    one = limit()
    one.asks("g2", 10)
    one.asks("g1", 5000)
    assert one.goes_on("g1")
    assert not one.goes_on("g2")


def test_a_trajectory_of_another_life_is_admitted_again() -> None:
    one = limit()
    one.asks("g1", 10)
    one.ends("g1")
    one.ends("g1")
    assert one.goes_on("g1")
    one.asks("g1", 20)
    assert one.resident == 20


def test_the_sums_follow_what_happens() -> None:
    one, random = limit(capacity=1000, most=999), Random(1)
    lengths: dict[str, tuple[int, float]] = {}
    waits = 0
    for _ in range(2_000):
        key, length = f"g{random.randrange(20):02d}", random.randrange(1, 150)
        match random.randrange(3):
            case 0:
                one.asks(key, length)
                lengths[key] = length, length
            case 1:
                one.acted(key, Turn(prompt=length, tokens=1, cached=None))
                if key in lengths:
                    lengths[key] = length + 1, IDLE_WEIGHT * (length + 1)
            case _:
                one.ends(key)
                lengths.pop(key, None)
        assert one.resident == sum(length for length, _ in lengths.values())
        older = 0.0
        for key in sorted(lengths):
            if abs(older - one.budget) > 1e-6:
                assert one.goes_on(key) is (older <= one.budget)
                waits += not one.goes_on(key)
            older += lengths[key][1]
    assert waits


def test_long_trajectories_leave_no_room_for_new_ones() -> None:
    one = limit()
    for number in range(10):
        one.asks(f"g{number}", 10)
    assert one.limit() <= 11  # they will grow to 100 each
    for number in range(10):
        one.asks(f"g{number}", 100 + 10 * (number % 2))
    assert one.limit() == 10


def test_an_even_mix_holds_more_than_beginners_do() -> None:
    even, young = (limit(capacity=10_000, most=999) for _ in range(2))
    for number in range(100):
        even.asks(f"g{number:03d}", 1 + number)
        young.asks(f"g{number:03d}", 1)
    assert even.limit() > young.limit()


def test_trajectories_whose_tools_run_leave_room_for_others() -> None:
    busy, idle = limit(capacity=1000, most=999), limit(capacity=1000, most=999)
    for number in range(8):
        busy.asks(f"g{number}", 120)
        acts(idle, f"g{number}", 120)
    assert idle.limit() > busy.limit()


def test_retractions_cut_and_new_weights_do_not() -> None:
    one = limit()
    acts(one, "g1", 100, retractions=1)
    one.step()
    assert one.share == pytest.approx(CUT)
    acts(one, "g1", 150, weights="a.2", retractions=1)
    acts(one, "g1", 200, weights="", retractions=1)
    one.step()
    assert one.share == pytest.approx(CUT)
    assert (one.retractions, one.lost) == (1, 0)


@pytest.mark.parametrize(("queued", "factor"), [(True, TRIM), (False, 1.0)])
def test_some_lost_tokens_trim_only_busy_servers(queued: bool, factor: float) -> None:
    one = limit()
    looks(one, queued=queued)
    acts(one, "g1", 500)
    acts(one, "g1", 1000, cached=390)
    one.step()
    assert one.lost == 110
    assert one.share == pytest.approx(factor)


def test_many_lost_tokens_trim_idle_servers_too() -> None:
    one = limit()
    looks(one, queued=False)
    acts(one, "g1", 500)
    acts(one, "g1", 510)
    one.step()
    assert one.share == pytest.approx(TRIM)


def test_idle_servers_with_full_caches_get_more() -> None:
    one = limit()
    looks(one, queued=False)
    one.asks("g1", 300)
    one.step()
    assert one.share == 1.0  # the budget is not in use
    one.asks("g2", 650)
    one.step()
    assert one.share == pytest.approx(GROW)
    looks(one, queued=True)
    one.step()
    assert one.share == pytest.approx(GROW)


def test_tokens_that_a_wait_cost_are_not_lost() -> None:
    one = limit(capacity=400)
    acts(one, "g1", 700)
    acts(one, "g2", 100)
    one.asks("g2", 120)
    assert not one.goes_on("g2")
    one.ends("g1")
    acts(one, "g2", 120)
    assert one.lost == 0


def test_a_rewritten_context_is_not_lost() -> None:
    one = limit()
    acts(one, "g1", 500)
    acts(one, "g1", 50)
    assert (one.lost, one.resident) == (0, 50)
