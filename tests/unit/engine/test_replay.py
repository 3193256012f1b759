"""`engine replay`: a recorded run is compared with its records without a model, bit for bit."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from engine.cli import app
from engine.config import EngineTable
from engine.core.rewards.rewards import Rewards
from engine.core.trajectory.events import AnyEvent, Ended, encode
from engine.errors import StartupError
from engine.offline.inspect.replay import ReplayResult, replay
from engine.serving.journal.journal import Journal
from engine.serving.journal.schema import FILE_NAME
from tests.support.journaled import store_group
from tests.support.logs import V0, example
from tests.support.recipes import recipe_tables, write_recipe
from toolwright.recipe import load_recipe
from toolwright.types import StopReason, Task, Trajectory, floats, ids

REWARD = """
def reward(trajectory):
    right = 0.5 if trajectory.task.answers == ("42",) else 1.0
    return right, {"right": right, "tidy": 0.0}
"""


def log(index: int) -> list[AnyEvent]:
    """An example whose reward part is what REWARD gives."""
    events = example(answer=(40, 41 + index))
    score = events[-1]
    parts = (score.parts[0], replace(score.parts[1], turn=None))  # type: ignore[union-attr]
    return [*events[:-1], type(score)(reward=0.5, parts=parts)]  # type: ignore[call-arg]


async def recorded(
    folder: Path,
    *,
    history: str = "all",
    change: Callable[[Trajectory], Trajectory] = lambda one: one,
) -> Path:
    """A run of three groups of two; `change` is what became of the record of g0000001-1."""

    def changed(one: Trajectory) -> Trajectory:
        return change(one) if one.id == "g0000001-1" else one

    journal = Journal(folder / FILE_NAME, history=history)  # type: ignore[arg-type]
    for position in range(3):
        logs = {f"g{position:07d}-{index}": log(index) for index in range(2)}
        task = Task(id=f"q{position}", prompt="6*7", answers=("42",))
        await store_group(journal, position, logs, version=V0, change=changed, task=task)
    journal.append("g0000003-0/b1r0a0", log(0)[:4])
    journal.append("g0000003-1/b1r0a0", log(0)[:2])
    journal.forget("g0000003-1/b1r0a0")
    await journal.close()
    return folder


async def replayed(folder: Path, reward: str = REWARD, *, per_group: bool = False) -> ReplayResult:
    (folder / "task.py").write_text(reward, encoding="utf-8")
    rewards = Rewards("./task.py:reward", folder, per_group=per_group, seconds=20)
    return await replay(folder, {"": rewards}, folder / "no-policy")


OF_A_GROUP = "def reward(group): return [(0.5, {'right': 0.5, 'tidy': 0}) for one in group]"
SEES = """
def reward(t):
    right = t.metadata['texts'] == ['<python>6*7</python>', '<answer>42</answer>']
    right = right and not t.reward_parts and not t.masked
    return 0.5 * right, {'right': 0.5 * right, 'tidy': 0.0}
"""


@pytest.mark.parametrize("reward", [REWARD, OF_A_GROUP, SEES], ids=["one", "group", "sees"])
async def test_a_recorded_run_is_identical(tmp_path: Path, reward: str) -> None:
    """Also beside a living engine. Reward functions see what they saw in the run."""
    await recorded(tmp_path)
    journal = Journal(tmp_path / FILE_NAME, history="all")
    done = await replayed(tmp_path, reward, per_group=reward is OF_A_GROUP)
    await journal.close()
    assert (done.groups, done.trajectories, done.rewards, done.without_record) == (3, 6, 6, 2)
    assert done.tokens == 6 * 10
    assert done.differences == []
    assert "identical" in list(done.lines())[-1]


def changed_segment(number: int, **values: object) -> Callable[[Trajectory], Trajectory]:
    def change(one: Trajectory) -> Trajectory:
        (sequence,) = one.sequences
        segments = list(sequence.segments)
        segments[number] = replace(segments[number], **values)  # type: ignore[arg-type]
        return replace(one, sequences=(replace(sequence, segments=tuple(segments)),))

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (changed_segment(1, token_ids=ids([10, 99])), "turn 0, position 4: token id is 99"),
        (changed_segment(4, trainable=False), "turn 1, position 8: trainable is False"),
        (changed_segment(4, logprobs=floats([-0.125, -0.0])), "turn 1, position 9: log-prob"),
        (changed_segment(2, weight_version=V0), "turn 0, position 5: weight version is a.0"),
        (changed_segment(4, token_ids=ids([40]), logprobs=floats([-0.125])), "length is 9"),
        (lambda one: replace(one, reward=0.5000000000000001), "reward is 0x1.0"),
        (lambda one: replace(one, masked=True), "masked is True"),
        (lambda one: replace(one, calls=()), "calls is ()"),
        (lambda one: replace(one, metadata={}), "wire bytes"),
    ],
)
async def test_the_first_difference_is_named(
    tmp_path: Path, change: Callable[[Trajectory], Trajectory], said: str
) -> None:
    done = await replayed(await recorded(tmp_path, change=change))
    assert len(done.differences) == 1
    line = list(done.lines())[-1]
    assert "different: 1 trajectories" in line
    assert f"g0000001-1, {said}" in line or f"g0000001-1: {said}" in line


@pytest.mark.parametrize(
    "reward",
    [
        "def reward(t): return 0.25",
        "def reward(t): raise RuntimeError",
        "def reward(t): return 0.5 if t.reward_parts else 0.0",
    ],
)
async def test_another_reward_is_a_difference(tmp_path: Path, reward: str) -> None:
    done = await replayed(await recorded(tmp_path), reward)
    assert len(done.differences) == 6
    assert "functions called again" in str(done.differences[0])


async def test_a_run_without_logs_is_refused_with_the_mend(tmp_path: Path) -> None:
    await recorded(tmp_path, history="open")
    with pytest.raises(StartupError, match=r'engine\.history = "all"'):
        await replayed(tmp_path)
    with pytest.raises(StartupError, match="no run in"):
        await replay(
            tmp_path / "nowhere",
            {"": Rewards("json:loads", tmp_path, per_group=False, seconds=1)},
            tmp_path,
        )


@pytest.mark.parametrize(
    "data", [b"garbage", encode([Ended(reason=StopReason.ANSWERED)] * 2), encode([])]
)
async def test_a_log_that_is_no_log_is_a_difference_and_the_rest_is_compared(
    tmp_path: Path, data: bytes
) -> None:
    await recorded(tmp_path)
    with contextlib.closing(sqlite3.connect(tmp_path / FILE_NAME)) as db, db:
        (batch,) = db.execute(
            "SELECT max(batch) FROM events JOIN logs USING (log) WHERE attempt LIKE 'g0000001-0/%'"
        ).fetchone()
        db.execute("UPDATE events SET data = ? WHERE batch = ?", (data, batch))
    done = await replayed(tmp_path)
    assert {one.trajectory for one in done.differences} == {"g0000001-0"}
    assert (done.trajectories, done.rewards) == (5, 5)


def test_the_command_says_what_it_compared_and_exits_1_where_something_differs(
    tmp_path: Path,
) -> None:
    def command(*words: object) -> tuple[int, str]:
        done = CliRunner().invoke(app, ["replay", *map(str, words)])
        return done.exit_code, done.output

    tables = recipe_tables(
        policy=tmp_path / "no-policy", sampler="http://x", tools={}, engine="x:1"
    )
    code = REWARD.replace("def reward", "def score")
    recipes = []
    for name, text in (("one", code), ("other", "def score(trajectory): return 1")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "my_reward.py").write_text(text, encoding="utf-8")
        recipes.append(write_recipe(tmp_path / name, tables))
    run = asyncio.run(recorded(tmp_path / "one" / "run"))
    status, said = command(run)
    assert (status, "does not say which recipe" in said) == (1, True)
    read = load_recipe(recipes[0])
    read.write_resolved("engine", read.table("engine", EngineTable))
    status, said = command(run)
    assert (status, said.splitlines()[0][:28]) == (0, "6 trajectories of 3 groups, "), said
    status, said = command(run, recipes[1])
    assert status == 1
    assert "g0000000-0: reward (functions called again) is" in said
