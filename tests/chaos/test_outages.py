"""Services that are away, silent or full: no trajectory is masked, no wrong answer is counted.

The quick version runs with all tests. Its recipe has short limits, and each outage is longer than
the limits that must not count it. Nine minutes do the same under the default recipe.
`CHAOS=full pytest tests/chaos/test_outages.py -s` takes the real times under the default recipe.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.conftest import FULL
from tests.chaos.crowd import Crowd
from tests.chaos.judge import judge
from tests.chaos.workload import Workload
from tests.support.recipes import merged
from tests.support.waiting import blocks

TIMEOUT = 1500.0 if FULL else 150.0
SAMPLER_AWAY_S = 540.0 if FULL else 5.0
TOOLS_AWAY_S = 60.0 if FULL else 3.0
STOPPED_S = 20.0 if FULL else 10.0
"""Silence is noticed after eight seconds, whatever the recipe says."""
CROWDED = (256, 64) if FULL else (32, 8)
"""Trajectories at once, and sessions that the tool service has room for."""
SUITE, ROWS = "held-out", 12
"""What is evaluated meanwhile."""

SHORT: dict[str, Any] = {
    "task": {"limits": {"seconds": 4.5}},
    "sampler": {"patience_s": 2.0},
    "engine": {"patience_s": 2.0},
}

pytestmark = pytest.mark.timeout(TIMEOUT)


@contextmanager
def crowd_of(
    folder: Path,
    trajectories: int,
    *,
    changes: dict[str, Any] | None = None,
    tool_options: tuple[str, ...] = (),
) -> Iterator[Crowd]:
    """All at once, in groups of four, beside an evaluation of `ROWS` rows."""
    suite = {"name": SUITE, "source": "tests.chaos.workload:questions", "n": ROWS}
    tables = {"engine": {"evaluation": {"suites": [suite]}}}
    made = Crowd(
        folder,
        Workload(calls=(2, 4), tokens=(32, 48), call_s=(0.05, 0.4)),
        groups=trajectories // 4,
        size=4,
        places=trajectories,
        rate=80.0,
        changes=merged(tables, changes or {}),
        tool_options=tool_options,
    )
    made.run.patience = TIMEOUT
    try:
        made.start()
        yield made
    finally:
        made.close()


def end(crowd: Crowd) -> None:
    """The run to its end; judged."""
    evaluations = crowd.run_folder / "evaluations.jsonl"
    crowd.wait(evaluations.exists, "evaluation")
    crowd.finish()
    figures = judge(crowd, evaluated={SUITE: ROWS})
    print(json.dumps(figures.to_json()))


@pytest.mark.quick
def test_a_sampler_that_dies_for_longer_than_every_patience(tmp_path: Path) -> None:
    with crowd_of(tmp_path, 64 if FULL else 16, changes={} if FULL else SHORT) as crowd:
        blocks(0.5, "the crowd is at work")
        crowd.kill_sampler()
        blocks(SAMPLER_AWAY_S, "the sampler is away")
        assert not crowd.offered(), "it was killed too late"
        crowd.start_sampler()
        end(crowd)
        assert not crowd.logged("attempt_failed")


@pytest.mark.slow
def test_a_tool_service_that_is_away_for_a_while(tmp_path: Path) -> None:
    changes: dict[str, Any] = {"task": {"limits": {"seconds": 4.0}}}
    with crowd_of(tmp_path, 64 if FULL else 16, changes={} if FULL else changes) as crowd:
        blocks(0.5, "the crowd is at work")
        crowd.kill_tools()
        blocks(TOOLS_AWAY_S, "the tools are away")
        crowd.start_tools()
        end(crowd)
        assert crowd.logged("tool_service_away")
        assert crowd.logged("tool_service_back")


@pytest.mark.only_in_full
@pytest.mark.slow
def test_a_tool_service_that_is_stopped_and_says_nothing(tmp_path: Path) -> None:
    with crowd_of(tmp_path, 64 if FULL else 16) as crowd:
        blocks(0.5, "the crowd is at work")
        assert crowd.tools is not None
        crowd.tools.send_signal(signal.SIGSTOP)
        blocks(STOPPED_S, "the tools say nothing")
        crowd.tools.send_signal(signal.SIGCONT)
        end(crowd)
        assert crowd.logged("tool_service_away"), "silence was not noticed"
        assert crowd.logged("tool_service_back")
        assert not crowd.logged("attempt_failed"), "nothing was lost"


@pytest.mark.only_in_full
@pytest.mark.slow
def test_a_tool_service_with_room_for_a_fourth(tmp_path: Path) -> None:
    trajectories, room = CROWDED
    options = ("--max-sessions", str(room))
    changes: dict[str, Any] = {"task": {"limits": {"seconds": 4.0}}}
    with crowd_of(
        tmp_path, trajectories, changes={} if FULL else changes, tool_options=options
    ) as crowd:
        end(crowd)
        assert not crowd.logged("attempt_failed")
