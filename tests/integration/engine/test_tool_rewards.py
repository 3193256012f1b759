"""Rewards that tools give: parts of their turns, in the record and in the learner's credit."""

from __future__ import annotations

import tomllib

import pytest

from learner.config.objective import Advantage, Credit
from tests.integration.engine.conftest import MakeWorld
from tests.support.docs import example
from tests.support.recipes import PAIR
from tests.support.tools import ToolDouble, text
from tests.unit.learner.records import credited
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.types import Group, Trajectory

pytestmark = pytest.mark.quick

WORTH = {0: 0.5, 1: -0.25}
"""Reward of the tool's only call, by the member that makes it."""
SHOWN = tomllib.loads(example("train/protocols-and-rewards.md", "# rewards of tools", "toml"))


def rewarding(request: pb.CallToolRequest) -> pb.CallResult:
    trajectory, *_ = request.call_id.split("/")
    return text("2", reward=WORTH[int(trajectory.rpartition("-")[2])])


async def pair(world: MakeWorld, **task: object) -> dict[int, Trajectory]:
    """A group of two, whose rewards are equal, by index."""
    here = await world(tools=ToolDouble(rewarding), run=PAIR, task=task)
    return {member.index: member for member in (await here.group()).members}


async def test_they_are_parts_of_their_turns_and_earn_credit(world: MakeWorld) -> None:
    members = await pair(world, **SHOWN["task"])
    for index, member in members.items():
        assert member.reward == 1.0, "a part of a turn enters no sum"
        parts = [(part.name, part.value, part.turn) for part in member.reward_parts]
        assert parts == [("correct", 1.0, None), ("tool_reward", WORTH[index], 0)]
    group = Group(id="g", trajectories=tuple(members.values()))
    exact = Advantage(std="population", eps=0.0)
    found = credited([group], exact, Credit(**SHOWN["learner"]["credit"]))
    first, second = (found[members[index].id] for index in (0, 1))
    # The call's tokens alone: the answers' turns have no reward, and rewards are equal.
    assert (first[0], second[0]) == (1.0, -1.0)
    assert (first[-1], second[-1]) == (0.0, 0.0)


async def test_by_itself_a_recipe_leaves_them_to_its_reward_function(world: MakeWorld) -> None:
    for index, member in (await pair(world)).items():
        assert [part.name for part in member.reward_parts] == ["correct"]
        assert member.calls[0].outcome.reward == WORTH[index]
