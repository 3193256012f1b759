"""The modelled GPU of the scripted sampler: its prefix cache, its queue, and its batch."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.scripted.scheduling.batch import Batch, Gpu
from bench.scripted.scheduling.prefix_cache import PrefixCache
from tests.support.scripted_replies import reply

pytestmark = pytest.mark.quick


def batch(tokens: int = 1000) -> Batch:
    return Batch(Gpu(cache_tokens=tokens, prefill_rate=100.0, decode_rate=50.0))


def test_the_least_recently_released_prefix_loses_its_end() -> None:
    cache = PrefixCache(100)
    for name in ("a", "b"):
        assert cache.take(name, 40)
        cache.release(name)
    assert cache.take("c", 50)
    assert [cache.cached(name) for name in "abc"] == [10, 40, 50]
    assert not cache.take("d", 60)
    assert (cache.held, cache.evictable) == (50, 50)
    cache.flush()
    assert [cache.cached(name) for name in "abc"] == [0, 0, 50]


@given(
    st.lists(st.tuples(st.sampled_from("tgr"), st.sampled_from("abcd"), st.integers(0, 60))),
)
def test_the_cache_never_holds_more_than_fits(steps: list[tuple[str, str, int]]) -> None:
    cache, running = PrefixCache(100), set[str]()
    for step, name, tokens in steps:
        if step == "t" and name not in running and cache.take(name, tokens):
            running.add(name)
        elif step == "g" and name in running:
            before = cache.cached(name)
            assert cache.grow(name, tokens) == (cache.cached(name) == before + tokens) or not tokens
        elif step == "r":
            cache.release(name)
            running.discard(name)
        if len(running) > 1:
            assert cache.held + cache.evictable <= 100
        assert cache.evictable == 0 or cache.held + cache.evictable <= 100


def test_a_prefill_takes_its_time_after_the_one_before() -> None:
    gpu = batch()
    for name in ("a", "b"):
        gpu.submit(reply(name, input_ids=(1,) * 200))
    (_, first, takes), (_, second, _) = [gpu.begin(0.0) or pytest.fail() for _ in "ab"]
    assert (first, takes, second) == (2.0, 2.0, 4.0)
    assert (gpu.waiting(1.0), gpu.waiting(3.0)) == (1, 0)


def test_a_cached_prefix_is_not_computed_again() -> None:
    gpu = batch()
    first = reply("a", input_ids=(1,) * 200)
    gpu.submit(first)
    gpu.begin(0.0)
    gpu.over(first)
    again = reply("a", input_ids=(1,) * 300, cached_tokens=200)
    gpu.submit(again)
    began = gpu.begin(10.0)
    assert began is not None
    assert began[2] == pytest.approx(1.0)
    assert (again.cached_tokens, gpu.hit_rate) == (200, 0.4)


def test_a_request_without_room_waits_for_the_end_of_another() -> None:
    gpu = batch()
    first, second = reply("a", input_ids=(1,) * 700), reply("b", input_ids=(1,) * 400)
    for one in (first, second):
        gpu.submit(one)
    assert gpu.begin(0.0) is not None
    assert gpu.begin(0.0) is None
    gpu.over(first)
    assert gpu.begin(8.0) is not None
    assert gpu.cache.cached("a") == 600


def test_a_batch_that_outgrows_the_cache_sends_its_newest_request_back() -> None:
    gpu = batch()
    first, second = reply("a", input_ids=(1,) * 600), reply("b", input_ids=(1,) * 390)
    for one in (first, second):
        gpu.submit(one)
        gpu.begin(0.0)
    assert gpu.grew(first, 5) is None
    assert gpu.grew(first, 20) is second
    assert (second.retractions, gpu.retracted, gpu.waiting(100.0)) == (1, 1, 1)
    assert gpu.cache.held == 625
    gpu.over(first)
    began = gpu.begin(20.0)
    assert began is not None
    assert began[0] is second
    assert began[2] == pytest.approx((390 - 375) / 100)


def test_more_streams_share_the_rate_of_all() -> None:
    gpu = batch()
    gpu.submit(reply("a"))
    gpu.begin(0.0)
    assert gpu.next_chunk(1.0, 0.5, 10) == pytest.approx(1.5)
    for name in "bcd":
        gpu.submit(reply(name))
        gpu.begin(0.0)
    assert gpu.next_chunk(1.0, 0.5, 10) == pytest.approx(1.8)


@pytest.mark.parametrize("key", ["prefill_rate", "decode_rate", "cache_tokens"])
def test_sizes_and_rates_are_positive(key: str) -> None:
    with pytest.raises(ValueError, match=f"{key} is 0; give"):
        Gpu(**{"cache_tokens": 1, key: 0})
