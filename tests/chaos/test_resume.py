"""kill -9 at seeded points under a crowd of trajectories: what was done stays done, once.

The quick version runs with all tests. `CHAOS=full pytest tests/chaos/test_resume.py -s` kills
twenty times under 256 trajectories in each of the tests and prints what it cost: about an hour.
"""

from __future__ import annotations

import json
import math
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from bench.history.events import SessionOpened
from bench.history.stored import read_appended
from engine.core.rollout.loop import LEAST_LIFE_S
from tests.chaos.conftest import FULL
from tests.chaos.crowd import Crowd
from tests.chaos.judge import Figures, judge
from tests.chaos.workload import Workload

MOST_AGAIN_PERCENT = 5.0
PAGE = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How large, and how often: `between` seconds before each kill."""

    groups: int
    size: int
    places: int
    rate: float
    workload: Workload
    kills: int
    between: tuple[float, float]
    timeout: float


QUICK = Scale(
    groups=4,
    size=4,
    places=12,
    rate=60.0,
    workload=Workload(calls=(2, 4), tokens=(32, 64), call_s=(0.05, 0.5)),
    kills=2,
    between=(0.8, 1.6),
    timeout=120.0,
)
LONG = Scale(
    groups=32,
    size=8,
    places=64,
    rate=25.0,
    workload=Workload(calls=(6, 10), tokens=(64, 128), call_s=(1.0, 6.0)),
    kills=20,
    between=(4.0, 20.0),
    timeout=1800.0,
)
SCALE = LONG if FULL else QUICK

pytestmark = pytest.mark.timeout(SCALE.timeout)


@pytest.fixture
def crowd(tmp_path: Path) -> Iterator[Crowd]:
    yield from started(tmp_path, SCALE)


@pytest.fixture
def stateless_crowd(tmp_path: Path) -> Iterator[Crowd]:
    yield from started(tmp_path, SCALE, stateful=False)


def started(folder: Path, scale: Scale, *, stateful: bool = True) -> Iterator[Crowd]:
    workload = scale.workload
    made = Crowd(
        folder,
        Workload(
            calls=workload.calls,
            tokens=workload.tokens,
            call_s=workload.call_s,
            stateful=stateful,
        ),
        groups=scale.groups,
        size=scale.size,
        places=scale.places,
        rate=scale.rate,
    )
    made.run.patience = scale.timeout
    try:
        made.start()
        yield made
    finally:
        made.close()


def killed_again_and_again(crowd: Crowd, kill: Callable[[], None], *, seed: int) -> Figures:
    """Kills, ends the run, judges it; prints the figures."""
    dice = Random(seed)
    for _ in range(SCALE.kills):
        time.sleep(dice.uniform(*SCALE.between))
        if crowd.complete:
            break
        kill()
    crowd.finish()
    figures = judge(crowd)
    print(json.dumps(figures.to_json()))
    return figures


@pytest.mark.slow
def test_an_engine_that_is_killed_goes_on_inside_its_trajectories(crowd: Crowd) -> None:
    def kill() -> None:
        crowd.kill_engine()
        crowd.start_engine()

    figures = killed_again_and_again(crowd, kill, seed=1)
    assert figures.kills == SCALE.kills
    assert figures.interrupted > SCALE.kills, "the kills came too late"
    assert figures.resumed >= 0.8 * figures.interrupted, figures
    if FULL:
        assert figures.again_percent <= MOST_AGAIN_PERCENT


@pytest.mark.only_in_full
@pytest.mark.slow
def test_an_engine_that_is_told_to_stop_loses_no_more_than_one_that_is_killed(
    crowd: Crowd,
) -> None:
    def stop() -> None:
        crowd.stop_engine()
        crowd.start_engine()

    figures = killed_again_and_again(crowd, stop, seed=5)
    assert figures.resumed == figures.interrupted > 0, figures
    assert not figures.restarts
    assert figures.again_percent < 10.0, "more than what was on its way"


@pytest.mark.only_in_full
@pytest.mark.slow
def test_a_tool_service_that_is_killed_costs_attempts_and_nothing_else(crowd: Crowd) -> None:
    killed_again_and_again(crowd, lambda: restart_tools(crowd), seed=2)


@pytest.mark.quick
def test_a_tool_without_state_that_is_killed_costs_no_attempt(stateless_crowd: Crowd) -> None:
    """A session in place of a lost one is itself replaced after `LEAST_LIFE_S` or an event. So the
    next kill waits for that: on a busy machine such sessions open late."""
    crowd = stateless_crowd

    def kill() -> None:
        while newest_replacement(crowd) < 2 * LEAST_LIFE_S and not crowd.complete:
            time.sleep(0.05)
        restart_tools(crowd)

    figures = killed_again_and_again(crowd, kill, seed=6)
    assert crowd.logged("session_replaced")
    assert not figures.restarts
    assert figures.again_percent <= MOST_AGAIN_PERCENT


def newest_replacement(crowd: Crowd) -> float:
    """Age of the youngest session that was opened in place of a lost one, in seconds."""
    opened = (
        event.at
        for event in read_appended(crowd.effects_file)
        if isinstance(event, SessionOpened) and "~" in event.session
    )
    return time.monotonic() - max(opened, default=-math.inf)


def restart_tools(crowd: Crowd) -> None:
    crowd.kill_tools()
    crowd.start_tools()


@pytest.mark.only_in_full
@pytest.mark.slow
def test_both_killed_at_once(crowd: Crowd) -> None:
    def kill() -> None:
        crowd.kill_tools()
        crowd.kill_engine()
        crowd.start_tools(wait=False)
        crowd.start_engine()

    killed_again_and_again(crowd, kill, seed=3)


@pytest.mark.only_in_full
@pytest.mark.slow
def test_a_full_disk_and_kills_while_it_is_full(crowd: Crowd) -> None:
    """Every other time the disk has room again before the kill, and nothing is lost."""
    fills = 0

    def kill() -> None:
        nonlocal fills
        fills += 1
        fill_disk(crowd)
        time.sleep(1.5)
        if fills % 2:
            empty_disk(crowd)
            time.sleep(1.5)
        crowd.kill_engine()
        crowd.start_engine()

    killed_again_and_again(crowd, kill, seed=4)
    assert crowd.logged("disk_has_room"), "the disk was never full"


def fill_disk(crowd: Crowd) -> None:
    """No file of the engine's grows any more: what a full disk does, for one process."""
    assert crowd.engine is not None
    resource.prlimit(crowd.engine.pid, resource.RLIMIT_FSIZE, (PAGE, resource.RLIM_INFINITY))


def empty_disk(crowd: Crowd) -> None:
    assert crowd.engine is not None
    unlimited = resource.RLIM_INFINITY
    resource.prlimit(crowd.engine.pid, resource.RLIMIT_FSIZE, (unlimited, unlimited))
