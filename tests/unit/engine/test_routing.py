"""Which sampler a request goes to, by numbers alone."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from engine.core.sampler.routing import (
    FIRST_SUSPICION,
    FORGET_SECONDS,
    LONGEST_SUSPICION,
    Router,
)

NAMES = ["a", "b"]


def router(*names: str, **paces: float) -> Router:
    """`paces`: measured seconds a token, at an empty queue."""
    made = Router()
    for name in names or NAMES:
        made.add(name)
    for name, pace in paces.items():
        for _ in range(300):
            made.measured(name, pace, 1.0)
    return made


def choose(made: Router, **more: Any) -> str:
    given = {"current": None, "tokens": 100.0, "prompt": 0, "now": 0.0, **more}
    return made.choose(list(made.loads), **given)


def test_a_trajectory_stays_where_its_prefix_is() -> None:
    made = router(a=0.010, b=0.006)
    assert choose(made) == "b"
    assert choose(made, current="a") == "a"


def test_a_trajectory_leaves_a_server_that_is_clearly_slower() -> None:
    made = router(a=0.1, b=0.01)
    assert choose(made, current="a") == "b"
    assert choose(made, current="a", tokens=2.0) == "a"  # a fifth of a second: not worth the prefix
    assert choose(made, current="a", prompt=40_000) == "a"  # reading it anew takes longer


def test_a_server_that_stands_still_loses_its_good_name() -> None:
    made = router(a=0.01, b=0.012)
    for _ in range(8):
        made.measured("a", 5.0, 0)
    assert choose(made) == "b"
    assert made.lags("a", NAMES)
    assert made.better("a", NAMES, tokens=100.0, prompt=100, now=0.0)


def test_an_idle_slow_server_is_tried_again_after_a_while() -> None:
    made = router(a=0.01, b=0.1)
    made.begin("b", 1.0)
    made.end("b", 0.0, now=100.0)
    made.begin("a", 50.0)
    assert choose(made, now=100.0) == "a"
    assert choose(made, now=100.0 + 8 * FORGET_SECONDS) == "b"


def test_a_server_that_failed_is_passed_over_and_longer_each_time() -> None:
    made = router()
    now, waits = 0.0, []
    for _ in range(10):
        made.failed("a", now)
        until = made.loads["a"].suspect_until
        waits.append(until - now)
        assert choose(made, now=now) == "b"
        now = until
        assert choose(made, now=now) == "a"
    assert waits[0] == FIRST_SUSPICION
    assert waits == sorted(waits)
    assert waits[-1] == LONGEST_SUSPICION
    made.served("a")
    made.failed("a", now)
    assert made.loads["a"].suspect_until == now + FIRST_SUSPICION


def test_requests_that_fail_together_are_one_failure() -> None:
    made = router()
    for _ in range(1000):
        made.failed("a", 1.0)
    assert made.loads["a"].suspect_until == 1.0 + FIRST_SUSPICION


@given(st.lists(st.tuples(st.floats(1, 500), st.floats(0, 1)), max_size=40))
def test_the_queue_is_what_is_expected_of_the_requests_in_flight(
    requests: list[tuple[float, float]],
) -> None:
    made = router("a")
    for tokens, share in requests:
        made.begin("a", tokens)
        made.took("a", tokens * share)
    load = made.loads["a"]
    assert abs(load.queued - sum(t * (1 - share) for t, share in requests)) < 1e-6
    for tokens, share in requests:
        made.end("a", tokens * (1 - share), 0.0)
    assert (load.in_flight, load.queued) == (0, 0.0)


def makespan(speeds: dict[str, tuple[float, float]], *, jobs: int, width: int) -> float:
    """Seconds for `jobs` actions of about 100 tokens, `width` at a time, routed as they come.

    speeds: seconds a token of one stream alone, and tokens a second of the whole server.
    """
    rng = random.Random(7)
    made = router(*speeds)
    events: list[tuple[float, int, str, float]] = []
    now, started, running = 0.0, 0, Counter[str]()

    def start() -> None:
        nonlocal started
        tokens = rng.lognormvariate(4.5, 0.5)
        name = choose(made, now=now)
        made.begin(name, made.expected(1000))
        running[name] += 1
        alone, whole = speeds[name]
        pace = max(alone, running[name] / whole)
        started += 1
        for part in range(10):  # its stream is measured while it goes on
            at = now + tokens * pace * (part + 1) / 10
            heapq.heappush(events, (at, started * 10 + part, name, tokens))

    for _ in range(width):
        start()
    while events:
        now, number, name, tokens = heapq.heappop(events)
        alone, whole = speeds[name]
        made.measured(name, max(alone, running[name] / whole) * tokens / 10, tokens / 10)
        made.took(name, made.expected(1000) / 10)
        if number % 10 == 9:
            running[name] -= 1
            made.end(name, 0.0, now)
            made.ended(int(tokens))
            if started < jobs:
                start()
    return now


def test_a_slow_server_beside_a_fast_one_makes_nothing_slower() -> None:
    """Ten times slower, by itself (a stream) and as a whole (all of them)."""
    fast = (0.002, 4000.0)
    for slow in ((0.02, 400.0), (0.02, 4000.0), (0.002, 400.0)):
        alone = makespan({"a": fast}, jobs=400, width=32)
        both = makespan({"a": fast, "b": slow}, jobs=400, width=32)
        assert both < 1.1 * alone, slow
