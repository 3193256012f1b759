"""Reward functions of every kind, and their faults kept away from the run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.core.rewards.rewards import MOST_CAUSES, Rewards
from engine.errors import StartupError
from tests.support.docs import example
from tests.support.finished_trajectories import prompt, trajectory, wrote
from tests.support.waiting import passes
from toolwright.types import (
    CallOutcome,
    CallRecord,
    RewardPart,
    Status,
    StopReason,
    Task,
    Trajectory,
)
from toolwright.wire import serialize, trajectory_from_proto, trajectory_to_proto

pytestmark = pytest.mark.quick

FUNCTIONS = """
import asyncio
import functools
import json
import time
import numpy
from engine.core.rewards import Score
from toolwright.types import Event, RewardPart

class Callable:
    async def __call__(self, t):
        return 3.0
class Unspeakable:
    def __repr__(self):
        raise RuntimeError
def number(t):
    return len(t.metadata["final_text"])
async def later(t):
    await asyncio.sleep(0)
    return 2.0
def of_group(ts):
    return [len(ts), {"rank": 1}, (5, {"x": 1.0})][: len(ts)]
def scores(t):
    return Score(
        reward=2, parts=[RewardPart(name="step", value=1, turn=0)], anchors={0: ["add"]},
        events=[Event(kind="judged", turn=0, data={"by": "me"})], outside_baseline=True,
    )
def each_its_own(t):
    raise KeyError(t.id)
def raises(t):
    raise KeyError("gold")
def raises_timeout(t):
    raise TimeoutError("mine")
def stops(t):
    raise StopIteration
def leaves(t):
    raise SystemExit(3)
async def leaves_the_loop(t):
    raise SystemExit(3)
async def cancels(t):
    raise asyncio.CancelledError
def half_a_character(t):
    raise ValueError("\\udc80" * 10_000)
async def sleeps(t):
    await asyncio.sleep(60)
def hangs(t):
    time.sleep(60)
true = lambda t: True
of_numpy = lambda t: numpy.float32(0.5)
parts = lambda t: {"correct": 1, "format": 0.25}
both = lambda t: (7, {"correct": 1.0})
instance = Callable()
partial = functools.partial(lambda x, t: x, 4.0)
masks = lambda t: Score(keep=False)
empty = lambda t: Score()
wrong_turn = lambda t: Score(parts=[RewardPart(name="step", value=1, turn=7)])
short_group = lambda ts: [1.0]
number_for_group = lambda ts: 1.0
nan_part = lambda t: {"a": float("inf")}
nothing = lambda t: None
wrong_parts = lambda t: (1.0, [1.0])
unspeakable = lambda t: Unspeakable()
value = 3
"""


def spoken(index: int = 0, **fields: Any) -> Trajectory:
    return trajectory(index, prompt(), wrote(), **{"metadata": {"final_text": "abc"}, **fields})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("rewards")
    (made / "my_reward.py").write_text(FUNCTIONS, encoding="utf-8")
    return made


def rewards(folder: Path, name: str, *, per_group: bool = False, seconds: float = 5) -> Rewards:
    return Rewards(f"./my_reward.py:{name}", folder, per_group=per_group, seconds=seconds)


async def score(
    folder: Path, name: str, given: Sequence[Trajectory] = (spoken(),), **options: Any
) -> list[Trajectory]:
    return await rewards(folder, name, **options).score(given)


@pytest.mark.parametrize(
    ("name", "total", "parts"),
    [
        ("number", 3.0, {"reward": 3.0}),
        ("true", 1.0, {"reward": 1.0}),
        ("of_numpy", 0.5, {"reward": 0.5}),
        ("parts", 1.25, {"correct": 1.0, "format": 0.25}),
        ("both", 7.0, {"correct": 1.0}),
        ("later", 2.0, {"reward": 2.0}),
        ("instance", 3.0, {"reward": 3.0}),
        ("partial", 4.0, {"reward": 4.0}),
    ],
)
async def test_rewards(folder: Path, name: str, total: float, parts: dict[str, float]) -> None:
    (scored,) = await score(folder, name)
    assert type(scored.reward) is float
    assert scored.reward == total
    assert scored.reward_parts == tuple(RewardPart(name=k, value=v) for k, v in parts.items())
    assert not scored.masked
    assert scored.stop_reason is StopReason.ANSWERED


async def test_per_group(folder: Path) -> None:
    scored = await score(folder, "of_group", [spoken(i) for i in range(3)], per_group=True)
    assert [t.reward for t in scored] == [3.0, 1.0, 5.0]
    assert [t.index for t in scored] == [0, 1, 2]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("raises", "raised KeyError('gold')"),
        ("raises_timeout", "raised TimeoutError('mine')"),
        ("stops", "raised StopIteration()"),
        ("leaves", "raised SystemExit(3)"),
        ("nan_part", "returned inf, not a finite number"),
        ("nothing", "returned None, not a finite number"),
        ("wrong_parts", "parts are list, not a dictionary"),
        ("leaves_the_loop", "raised SystemExit(3)"),
        ("cancels", "raised CancelledError()"),
        ("half_a_character", "raised ValueError("),
        ("unspeakable", "returned a Unspeakable that has no repr"),
        ("empty", "a Score with neither reward nor parts"),
        ("wrong_turn", "part 'step': turn 7; the trajectory has turns 0 to 0"),
    ],
)
async def test_faults_are_masked_and_told(folder: Path, name: str, words: str) -> None:
    (scored,) = await score(folder, name)
    assert (scored.reward, scored.masked) == (0.0, True)
    assert (scored.status, scored.stop_reason) == (Status.COMPLETED, StopReason.ANSWERED)
    assert scored.outside_baseline
    serialize(trajectory_to_proto(scored))
    (event,) = scored.events
    assert event.kind == "reward_failed"
    assert words in event.data["error"]


LINES = """
import json
def helper(t):
    return t.metadata["final_txt"]
def through_a_helper(t):
    return helper(t)
def through_a_library(t):
    return json.loads("{")
class Callable:
    async def __call__(self, t):
        return t.metadata["final_txt"]
instance = Callable()
def hidden(t):
    try:
        return t.metadata["final_txt"]
    except KeyError as error:
        raise ValueError("no text") from error
"""
LINE_OF = {"through_a_helper": 4, "through_a_library": 8, "instance": 11, "hidden": 17}


@pytest.mark.parametrize("name", LINE_OF)
async def test_a_function_that_raises_is_named_with_its_line(tmp_path: Path, name: str) -> None:
    (tmp_path / "my_reward.py").write_text(LINES, encoding="utf-8")
    (scored,) = await score(tmp_path, name)
    assert scored.events[0].data["error"].endswith(f" at my_reward.py:{LINE_OF[name]}")


async def test_causes_are_bounded(folder: Path) -> None:
    function = rewards(folder, "each_its_own")
    await function.score([spoken(n) for n in range(MOST_CAUSES + 5)])
    assert len(function.failures) == MOST_CAUSES + 1
    assert function.failures["other causes"] == 5


@pytest.mark.parametrize("name", ["sleeps", "hangs"])
async def test_a_function_that_takes_too_long(folder: Path, name: str) -> None:
    (scored,) = await score(folder, name, seconds=0.05)
    assert scored.masked
    assert 0.04 < scored.timings.reward_s < 5
    assert "took more than 0.05 s" in scored.events[0].data["error"]


async def test_a_function_that_hangs_costs_threads_up_to_a_bound_and_keeps_nothing_from_ending(
    folder: Path,
) -> None:
    before = threading.active_count()
    hanging = rewards(folder, "hangs", seconds=0.02)
    scored = await hanging.score([spoken(i) for i in range(64)])
    assert threading.active_count() - before <= 32 + 8
    assert all(t.masked for t in scored)
    assert " calls of the reward function never returned" in scored[-1].events[0].data["error"]
    left = [thread for thread in threading.enumerate() if thread.name == "reward"]
    assert all(thread.daemon for thread in left)
    (scored_by_another,) = await score(folder, "number", seconds=1)
    assert scored_by_another.reward == 3.0


async def test_a_score_reaches_the_record_whole(folder: Path) -> None:
    (scored,) = await score(folder, "scores")
    assert (scored.reward, scored.masked, scored.outside_baseline) == (2.0, False, True)
    assert scored.reward_parts == (RewardPart(name="step", value=1.0, turn=0),)
    assert scored.anchors == {0: ("add",)}
    assert [event.kind for event in scored.events] == ["judged"]
    assert trajectory_from_proto(trajectory_to_proto(scored)) == scored
    (masked,) = await score(folder, "masks")
    assert (masked.reward, masked.masked, masked.events) == (0.0, True, ())


async def test_an_awaited_cancellation_is_not_the_function_s(folder: Path) -> None:
    scoring = asyncio.ensure_future(score(folder, "sleeps"))
    await passes(0.02, "the function runs")
    scoring.cancel()
    with pytest.raises(asyncio.CancelledError):
        await scoring


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("short_group", "returned 1 rewards for 2"),
        ("number_for_group", "returned float, not 2 rewards"),
    ],
)
async def test_a_group_s_fault_is_every_member_s(folder: Path, name: str, words: str) -> None:
    scored = await score(folder, name, [spoken(0), spoken(1)], per_group=True)
    assert all(t.masked and words in t.events[0].data["error"] for t in scored)


async def test_one_member_s_fault_is_its_own(folder: Path) -> None:
    bad = spoken(1, metadata={})
    scored = await score(folder, "number", [spoken(0), bad, spoken(2)])
    assert [t.masked for t in scored] == [False, True, False]
    assert [t.reward for t in scored] == [3.0, 0.0, 3.0]


@pytest.mark.parametrize("per_group", [True, False])
async def test_errored_members_are_not_asked_about(folder: Path, per_group: bool) -> None:
    lost = spoken(
        1, status=Status.ERRORED, masked=True, stop_reason=StopReason.SAMPLER_ERROR, metadata={}
    )
    given = [spoken(0), lost, spoken(2)]
    name = "of_group" if per_group else "number"
    scored = await score(folder, name, given, per_group=per_group)
    assert [t.id for t in scored] == [t.id for t in given]
    assert scored[1] == replace(lost, outside_baseline=True)
    assert scored[0].reward == (2.0 if per_group else 3.0)  # the group that it saw has two
    only = await score(folder, name, [lost], per_group=per_group)
    assert only == [scored[1]]


async def test_the_example_of_the_docs_gives_credit_by_turn(tmp_path: Path) -> None:
    (tmp_path / "my_reward.py").write_text(
        example("train/protocols-and-rewards.md", "# turns.py"), encoding="utf-8"
    )
    outcome = CallOutcome(observation="", valid=True)
    call = CallRecord(call_id="c", turn=0, index=0, tool="add", action="", outcome=outcome)
    asked = spoken(
        task=Task(id="q", answers=("abc",)), calls=(call,), metadata={"final_text": "abc"}
    )
    (scored,) = await score(tmp_path, "score", [asked])
    assert (scored.reward, scored.masked, scored.anchors) == (1.0, False, {0: ("add",)})
    assert scored.reward_parts[1] == RewardPart(name="call", value=0.1, turn=0)
    (silent,) = await score(tmp_path, "score")
    assert silent.masked


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("./my_reward.py:absent", "task.reward: .*has no 'absent'"),
        ("./absent.py:score", "task.reward: no file"),
        ("./my_reward.py:value", "is not a function"),
        ("nonsense", "task.reward: 'nonsense': write it as"),
    ],
)
def test_what_is_no_reward_is_named_at_the_start(folder: Path, path: str, words: str) -> None:
    with pytest.raises(StartupError, match=words):
        Rewards(path, folder, per_group=False, seconds=1)
