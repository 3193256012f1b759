"""Reward functions of every kind, and their faults kept away from the run."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.errors import StartupError
from engine.rewards.rewards import Rewards
from toolwright.types import RewardPart, Status, StopReason, Task, Trajectory

FUNCTIONS = """
import asyncio
import functools
import time
import numpy

def number(t):
    return len(t.metadata["final_text"])
def true(t):
    return True
def of_numpy(t):
    return numpy.float32(0.5)
def parts(t):
    return {"correct": 1, "format": 0.25}
def both(t):
    return 7, {"correct": 1.0}
async def later(t):
    await asyncio.sleep(0)
    return 2.0
class Callable:
    async def __call__(self, t):
        return 3.0
instance = Callable()
partial = functools.partial(lambda x, t: x, 4.0)

def of_group(ts):
    return [len(ts), {"rank": 1}, (5, {"x": 1.0})][: len(ts)]
def short_group(ts):
    return [1.0]
def number_for_group(ts):
    return 1.0

def raises(t):
    raise KeyError("gold")
def raises_timeout(t):
    raise TimeoutError("mine")
def stops(t):
    raise StopIteration
def leaves(t):
    raise SystemExit(3)
def nan(t):
    return float("nan")
def nan_part(t):
    return {"a": float("inf")}
def text(t):
    return "1.0"
def nothing(t):
    return None
def wrong_parts(t):
    return 1.0, [1.0]
async def sleeps(t):
    await asyncio.sleep(60)
def hangs(t):
    time.sleep(60)
value = 3
"""


def trajectory(index: int = 0, **fields: Any) -> Trajectory:
    base = Trajectory(
        id=f"g-{index}",
        group_id="g",
        index=index,
        task=Task(id="q"),
        sequences=(),
        status=Status.COMPLETED,
        stop_reason=StopReason.ANSWERED,
        metadata={"final_text": "abc"},
    )
    return replace(base, **fields)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("rewards")
    (made / "my_reward.py").write_text(FUNCTIONS)
    return made


def rewards(folder: Path, name: str, *, per_group: bool = False, seconds: float = 5) -> Rewards:
    return Rewards(f"./my_reward.py:{name}", folder, per_group=per_group, seconds=seconds)


async def score(
    folder: Path, name: str, given: Sequence[Trajectory] = (trajectory(),), **options: Any
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
    scored = await score(folder, "of_group", [trajectory(i) for i in range(3)], per_group=True)
    assert [t.reward for t in scored] == [3.0, 1.0, 5.0]
    assert [t.index for t in scored] == [0, 1, 2]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("raises", "raised KeyError('gold')"),
        ("raises_timeout", "raised TimeoutError('mine')"),
        ("stops", "raised StopIteration()"),
        ("leaves", "raised SystemExit(3)"),
        ("nan", "returned nan, not a finite number"),
        ("nan_part", "returned inf, not a finite number"),
        ("text", "returned '1.0', not a finite number"),
        ("nothing", "returned None, not a finite number"),
        ("wrong_parts", "parts are list, not a dictionary"),
    ],
)
async def test_faults_are_masked_and_told(folder: Path, name: str, words: str) -> None:
    (scored,) = await score(folder, name)
    assert (scored.reward, scored.masked) == (0.0, True)
    assert scored.stop_reason is StopReason.REWARD_ERROR
    (event,) = scored.events
    assert event.kind == "reward_failed"
    assert words in event.data["error"]


@pytest.mark.parametrize("name", ["sleeps", "hangs"])
async def test_a_function_that_takes_too_long(folder: Path, name: str) -> None:
    (scored,) = await score(folder, name, seconds=0.05)
    assert scored.masked
    assert "took more than 0.05 s" in scored.events[0].data["error"]


async def test_a_function_that_hangs_keeps_nothing_from_ending(folder: Path) -> None:
    """Nor does it use up a pool: the next ones run while it hangs."""
    hanging = rewards(folder, "hangs", seconds=0.02)
    for _ in range(3):
        await hanging.score([trajectory(i) for i in range(16)])
    left = [thread for thread in threading.enumerate() if thread.name == "reward"]
    assert len(left) >= 48
    assert all(thread.daemon for thread in left)
    (scored,) = await score(folder, "number", seconds=1)
    assert scored.reward == 3.0


@pytest.mark.parametrize("name", ["short_group", "number_for_group"])
async def test_a_group_s_fault_is_every_member_s(folder: Path, name: str) -> None:
    scored = await score(folder, name, [trajectory(0), trajectory(1)], per_group=True)
    assert all(t.masked for t in scored)
    assert "not 2 rewards" in scored[0].events[0].data["error"]


async def test_one_member_s_fault_is_its_own(folder: Path) -> None:
    bad = trajectory(1, metadata={})
    scored = await score(folder, "number", [trajectory(0), bad, trajectory(2)])
    assert [t.masked for t in scored] == [False, True, False]
    assert [t.reward for t in scored] == [3.0, 0.0, 3.0]


@pytest.mark.parametrize("per_group", [True, False])
async def test_errored_members_are_not_asked_about(folder: Path, per_group: bool) -> None:
    lost = trajectory(
        1, status=Status.ERRORED, masked=True, stop_reason=StopReason.SAMPLER_ERROR, metadata={}
    )
    given = [trajectory(0), lost, trajectory(2)]
    name = "of_group" if per_group else "number"
    scored = await score(folder, name, given, per_group=per_group)
    assert [t.id for t in scored] == [t.id for t in given]
    assert scored[1] == lost
    assert scored[0].reward == (2.0 if per_group else 3.0)  # the group that it saw has two
    only = await score(folder, name, [lost], per_group=per_group)
    assert only == [lost]


async def test_the_time_is_kept(folder: Path) -> None:
    (scored,) = await score(folder, "sleeps", seconds=0.05)
    assert 0.04 < scored.timings.reward_s < 5


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("./my_reward.py:absent", "task.reward: .*has no 'absent'"),
        ("./absent.py:score", "task.reward: no file"),
        ("./my_reward.py:value", "is no function"),
        ("nonsense", "task.reward: 'nonsense': write it as"),
    ],
)
def test_what_is_no_reward_is_named_at_the_start(folder: Path, path: str, words: str) -> None:
    with pytest.raises(StartupError, match=words):
        Rewards(path, folder, per_group=False, seconds=1)
