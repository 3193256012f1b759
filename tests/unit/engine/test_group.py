"""A group's way: what an earlier life has done is not done again, and nothing is scored twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

from engine.core.protocols.tagged import Tagged
from engine.core.rewards.hook import GroupHook
from engine.core.rewards.rewards import Rewards
from engine.core.rollout.decide import Rules
from engine.core.tasks import DrawnTask
from engine.core.trajectory.events import Ended, Opened, decode, encode
from engine.core.trajectory.log import AttemptLog
from engine.serving.admission.places import Places
from engine.serving.crew.crew import GroupAssignment
from engine.serving.crew.in_process import InProcessCrew, merged_sampling
from tests.support.codecs import END, ToyCodec
from tests.support.written_logs import act, opened
from toolwright.recipe import Limits
from toolwright.types import SamplingParams, StopReason, Task, Trajectory, ids

CODE = """
from engine.core.rewards import Score
from toolwright.types import RewardPart

calls = []

def one(trajectory):
    calls.append(trajectory.id)
    trajectory.anchors[0] = ("its own copy",)
    return {"answer": 1.0}

def group(trajectories):
    assert all(not t.reward_parts for t in trajectories)
    return [{"answer": 1.0, "rank": float(t.index)} for t in trajectories]

async def hook(group):
    assert all(p.name != "bonus" for t in group for p in t.reward_parts)
    return [Score(parts=[RewardPart(name="bonus", value=0.5)]) for _ in group]
"""


class World:
    """A crew without samplers: every member's log has ended in an earlier life."""

    def __init__(self, folder: Path, *, per_group: bool = False) -> None:
        (folder / "code.py").write_text(CODE, encoding="utf-8")
        path = f"./code.py:{'group' if per_group else 'one'}"
        rules = Rules(
            protocol=Tagged(), codec=ToyCodec(), limits=Limits(), observation_keep="middle"
        )
        context: Any = SimpleNamespace(
            rules=rules, tokenizer_hash="toy", tools=SimpleNamespace(names=())
        )
        self.crew = InProcessCrew(
            rollout_context=context, places=Places(1), life="b2", patience=0.0,
            rewards=Rewards(path, folder, per_group=per_group, seconds=5.0, threads=1),
            hook=GroupHook("./code.py:hook", folder, seconds=5.0),
            keeper=lambda _attempt, _events, _blobs: None,
        )  # fmt: skip

    def logs(self) -> dict[str, AttemptLog]:
        return {f"g0-{index}": self.log(index) for index in range(2)}

    def log(self, index: int) -> AttemptLog:
        attempt = f"g0-{index}/b1r0a0"
        written = opened(attempt=attempt)
        act(written, f"<answer>2</answer>{END}", END)
        log = AttemptLog(attempt, self.crew.keeper, start=written.state)
        log.append(Ended(reason=StopReason.ANSWERED))
        return log

    async def run(self, earlier: dict[str, AttemptLog], iteration: str = "") -> list[Trajectory]:
        group = GroupAssignment(
            group_id="g0", drawn=DrawnTask(position=0, task=Task(id="t")), size=2,
            sampling=SamplingParams(), earlier=earlier, iteration=iteration,
        )  # fmt: skip
        members = await self.crew.run_group(group)
        assert group.queued.is_set()
        return [member.trajectory for member in members]


def whole(trajectories: Sequence[Trajectory], *, per_group: bool) -> None:
    for trajectory in trajectories:
        parts = {part.name: part.value for part in trajectory.reward_parts}
        expected = {"answer": 1.0, "bonus": 0.5}
        if per_group:
            expected["rank"] = float(trajectory.index)
        assert parts == expected
        assert len(trajectory.reward_parts) == len(expected)
        assert trajectory.reward == sum(expected.values())
        assert trajectory.anchors == {}


@pytest.mark.parametrize("per_group", [False, True])
async def test_a_score_is_never_added_to_an_earlier_lifes(tmp_path: Path, per_group: bool) -> None:
    """Whatever the first life came to: ended, scored, or scored by the group hook."""
    world = World(tmp_path, per_group=per_group)
    logs = world.logs()
    first = await world.run(dict(logs))
    whole(first, per_group=per_group)
    again = await world.run(dict(logs))  # the group was not stored: all of it comes again
    whole(again, per_group=per_group)
    assert [t.reward_parts for t in again] == [t.reward_parts for t in first]


@pytest.mark.parametrize("hooked", [False, True])
async def test_a_member_that_was_scored_is_not_scored_again(tmp_path: Path, hooked: bool) -> None:
    """Whether or not the first life came as far as the group hook."""
    world = World(tmp_path)
    logs = world.logs()
    crew = world.crew
    world.crew = crew if hooked else replace(crew, hook=None)
    await world.run(dict(logs))
    world.crew = crew
    function = world.crew.rewards._function.function
    assert function.__globals__["calls"] == ["g0-0", "g0-1"]
    await world.run(dict(logs))
    assert function.__globals__["calls"] == ["g0-0", "g0-1"]


async def test_a_group_stays_in_the_iteration_that_it_began_in(tmp_path: Path) -> None:
    """Also where only one of its members had opened a session before the engine was killed."""
    world = World(tmp_path)
    world.crew = replace(
        world.crew, metadata={"at": "{iteration}", "raw": 7, "odd": "{version} {iteration}"}
    )
    logs = world.logs()
    for log, begun in ((logs["g0-1"], "run.4"), (logs["g0-0"], "")):
        log.state = structs.replace(log.state, iteration=begun)
    for trajectory in await world.run(dict(logs), "run.5"):
        told = {"at": "run.4", "raw": 7, "odd": "{version} run.4"}
        assert trajectory.task.metadata == told
    logs["g0-1"].state = structs.replace(logs["g0-1"].state, iteration="")
    found = await world.run(dict(logs), "run.5")
    assert {one.task.metadata["at"] for one in found} == {"run.5"}, "of an older engine's logs"


def test_the_event_of_an_older_engine_names_no_iteration() -> None:
    event = Opened(sessions=(), prompt=ids([1]), sampling=SamplingParams())
    assert b"iteration" not in encode([event])
    (read,) = decode(encode([structs.replace(event, iteration="run.3")]))
    assert isinstance(read, Opened) and read.iteration == "run.3"


def test_a_task_s_own_sampling_overlays_the_recipe_s() -> None:
    recipe = SamplingParams(temperature=1.0, top_p=0.9)
    assert merged_sampling(recipe, None) == recipe
    task = SamplingParams(temperature=0.0, max_new_tokens=5)
    assert merged_sampling(recipe, task) == SamplingParams(
        temperature=0.0, top_p=0.9, max_new_tokens=5
    )
