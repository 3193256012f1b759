"""The group hook: what it may be, what it may say, and that its faults stay its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.core.rewards.hook import GroupHook
from engine.core.rewards.score import Score
from engine.core.rewards.settle import scored
from engine.core.trajectory.events import Scored, decode, encode
from engine.core.trajectory.record import Identity, record
from engine.core.trajectory.state import fold
from engine.errors import StartupError
from tests.support.logs import example as example_log
from tests.unit.engine.rewards.test_reading import TWO_TURNS
from toolwright.types import RewardPart

HOOKS = """
import asyncio
from dataclasses import replace
from engine.core.rewards import Score
from toolwright.types import Event, RewardPart

calls = []
async def credits(group):
    best = max(t.reward for t in group)
    return [
        Score(parts=[RewardPart(name="share", value=0.5), RewardPart(name="t", value=1, turn=1)],
              anchors={1: ["add"]}) if t.reward == best else None
        for t in group
    ]
async def replaces(group):
    return [Score(reward=9.0, keep=False, outside_baseline=True) for t in group]
async def weighs(group):
    return [Score(weights={t.sequences[0].id: 0.25}) for t in group]
async def second_time(group):
    calls.append(len(group))
    if len(calls) < 2:
        raise ConnectionError("refused")
    return [None] * len(group)
async def raises(group):
    raise KeyError("gold")
async def sleeps(group):
    await asyncio.sleep(60)
async def short(group):
    return [None]
async def numbers(group):
    return [1.0 for t in group]
async def wrong_turn(group):
    return [Score(parts=[RewardPart(name="t", value=1, turn=9)]) for t in group]
def plain(group):
    return [None for t in group]
class Hook:
    async def __call__(self, group):
        return [None for t in group]
instance = Hook()
"""
GROUP = (TWO_TURNS, TWO_TURNS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("hooks")
    (made / "hooks.py").write_text(HOOKS, encoding="utf-8")
    return made


def hook(folder: Path, name: str, seconds: float = 5.0) -> GroupHook:
    return GroupHook(f"./hooks.py:{name}", folder, seconds=seconds, pauses=(0.0,))


async def test_parts_and_anchors_are_added_and_none_changes_nothing(folder: Path) -> None:
    low = scored(TWO_TURNS, Score(reward=1.0))
    high = scored(TWO_TURNS, Score(reward=2.0))
    first, second = await hook(folder, "credits").scores((low, high))
    assert first is None
    assert second is not None
    done = scored(high, second)
    assert done.reward == 2.5
    assert done.reward_parts[-1] == RewardPart(name="t", value=1.0, turn=1)
    assert done.anchors == {1: ("add",)}
    assert scored(high, second) == done  # the same again


async def test_a_reward_of_the_hook_replaces(folder: Path) -> None:
    (score, _) = await hook(folder, "replaces").scores(GROUP)
    assert score is not None
    done = scored(TWO_TURNS, score)
    assert (done.reward, done.masked, done.outside_baseline) == (9.0, True, True)


async def test_weights_of_sequences_are_journaled_with_the_hooks_score(folder: Path) -> None:
    (score, _) = await hook(folder, "weighs").scores(GROUP)
    assert score is not None
    after = scored(TWO_TURNS, score)
    assert [q.weight for q in after.sequences] == [0.25]
    name = after.sequences[0].id
    events = [*example_log(), Scored(reward=0.5, hooked=True, weights=after.weights)]
    assert decode(encode(events)) == events
    identity = Identity(
        trajectory_id=name.removesuffix(".0"), group_id="g", index=0, attempt=0, task=after.task,
        tokenizer_hash="",
    )  # fmt: skip
    assert record(fold(events), identity).weights == {name: 0.25}


async def test_a_hook_that_raised_is_called_again(folder: Path) -> None:
    assert await hook(folder, "second_time").scores(GROUP) == [None, None]
    assert await hook(folder, "instance").scores(GROUP) == [None, None]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("raises", "raised KeyError('gold')"),
        ("sleeps", "took more than 0.05 s"),
        ("short", "returned 1 scores for 2 trajectories"),
        ("numbers", "returned float for g-0, not a Score"),
        ("wrong_turn", "turn 9; the trajectory has turns 0 to 1"),
    ],
)
async def test_a_hook_that_fails_masks_its_group_and_keeps_the_rewards(
    folder: Path, name: str, words: str
) -> None:
    rewarded = scored(TWO_TURNS, Score(reward=1.0))
    for score in await hook(folder, name, 0.05).scores((rewarded, rewarded)):
        assert score is not None
        assert score.failed
        done = scored(rewarded, score)
        assert (done.reward, done.masked, done.outside_baseline) == (1.0, True, True)
        assert done.events[-1].kind == "group_hook_failed"
        assert words in done.events[-1].data["error"]


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("./hooks.py:plain", r"is not an? (async )?function"),
        ("./hooks.py:absent", "task.group_hook: .*has no 'absent'"),
    ],
)
def test_what_is_no_hook_is_named_at_the_start(folder: Path, path: str, words: str) -> None:
    with pytest.raises(StartupError, match=words):
        GroupHook(path, folder, seconds=1)
