"""Two tasks in one engine: each has its own questions, prompt, tools and reward, in every batch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from engine.errors import StartupError
from tests.integration.engine.conftest import MakeWorld, World
from tests.support.dialogue import ANSWER, by_turn
from tests.support.engines import Leased
from tests.support.tools import LONG_STOP, PYTHON, ToolDouble, serving, text
from tests.support.waiting import until
from toolwright.recipe import RecipeError
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.types import Trajectory

pytestmark = pytest.mark.quick

RUN = {"groups_per_step": 3, "group_size": 2, "steps": 4}
SUMS = {
    "tools": ["python"],
    "share": 2,
    "source": "task.py:training",
    "protocol_options": {"system": "Compute."},
}
FINDS = {
    "tools": ["other"],
    "source": "finds.jsonl",
    "reward": "./finds.py:score",
    "protocol_options": {"system": "Look it up."},
    "limits": {"turns": 1},
}
FINDS_REWARD = '''
def score(trajectory):
    """Of this task alone."""
    assert trajectory.task.name == "finds"
    return {"found": 7.0}
'''


def runner(tool: pb.ToolDescriptor = LONG_STOP) -> ToolDouble:
    return ToolDouble(lambda _: text("ran", tool="run"), tools=[tool])


def two_tasks(here: World, other: ToolDouble, **changes: Any) -> None:
    (here.folder / "finds.py").write_text(FINDS_REWARD, encoding="utf-8")
    rows = [{"id": f"f{n}", "prompt": f"find {n}", "data_source": "mine"} for n in range(5)]
    (here.folder / "finds.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8"
    )
    here.tables["tools"]["other"] = {"service": other.address}
    here.tables["tasks"] = {"sums": {**SUMS}, "finds": {**FINDS, **changes}}
    here.sampler._script = by_turn(here.codec, ["<python> 1+1</python> <run> x</run>", ANSWER])


async def batch(here: World) -> list[Leased]:
    async with here.engine() as run:
        return await run.learner.lease(count=3)


def members(groups: Sequence[Leased], task: str) -> list[Trajectory]:
    return [m for group in groups for m in group.members if m.task.name == task]


async def test_a_batch_has_both_and_each_is_its_own(world: MakeWorld) -> None:
    async with serving(runner()) as other:
        here = await world(run=RUN)
        two_tasks(here, other)
        groups = await batch(here)
    sums, finds = members(groups, "sums"), members(groups, "finds")
    assert (len(sums), len(finds)) == (4, 2)
    assert {one.task.id for one in sums} == {"t0", "t1"}
    assert {one.task.data_source for one in finds} == {"mine"}, "the row's own stays"
    assert {call.tool for one in sums for call in one.calls} == {"python"}
    assert {call.tool for one in finds for call in one.calls} == {"run"}
    assert {one.reward for one in finds} == {7.0}
    assert {part.name for one in sums for part in one.reward_parts} == {"correct"}
    assert here.texts(sums[0])[0][1].startswith("<|im_start|>system\nCompute.")
    assert here.texts(finds[0])[0][1].startswith("<|im_start|>system\nLook it up.")
    assert (len(here.tools.opened), len(other.opened)) == (4, 2), "no session on the other's tools"


async def test_all_tasks_take_services_in_one_order(world: MakeWorld) -> None:
    """Else a trajectory of each could hold what the other one waits for. Prompts show the order."""
    run_tool = pb.ToolDescriptor()
    run_tool.CopyFrom(LONG_STOP)
    run_tool.usage = "write <run> code </run>"
    async with serving(runner(run_tool)) as other:
        here = await world(run=RUN)
        shown = {"protocol_options": {"system": "{usage}"}}
        two_tasks(here, other, tools=["other", "python"], **shown)
        here.tables["tasks"]["sums"] |= {"tools": ["python", "other"], **shown}
        groups = await batch(here)
    prompts = [here.texts(group.members[0])[0][1] for group in groups]
    assert all(f"{PYTHON.usage}\n\n{run_tool.usage}<" in prompt for prompt in prompts)


async def test_a_restart_gives_no_question_twice(world: MakeWorld) -> None:
    async with serving(runner()) as other:
        here = await world(run=RUN)
        two_tasks(here, other)
        async with here.engine() as run:
            first = await run.learner.lease(count=3)
        async with here.engine() as run:
            again = await run.learner.lease(count=3)
            assert [group.hash for group in again] == [group.hash for group in first]
            await run.learner.publish(run.at(1), here.weights("one"))
            second = await run.learner.lease(after=again[-1].info.sequence_number, count=3)
    asked = [one.task.id for group in (*first, *second) for one in group.members[:1]]
    assert sorted(asked) == sorted({*asked}) and len(asked) == 6
    assert len(members(second, "finds")) == 2
    with pytest.raises(StartupError, match="groups of each task in a batch"):
        async with here.engine("tasks.sums.share=1", "tasks.finds.share=2"):
            pass


async def test_suites_are_rolled_out_and_scored_as_their_task_is(world: MakeWorld) -> None:
    async with serving(runner()) as other:
        here = await world(run={**RUN, "steps": 0})
        two_tasks(here, other)
        suites = [
            {"name": "s", "task": "sums", "source": "task.py:training", "n": 2},
            {"name": "f", "task": "finds", "source": "finds.jsonl", "n": 3},
        ]
        file = here.folder / "run" / "evaluations.jsonl"
        async with here.engine(engine={"evaluation": {"suites": suites}}):
            await until(
                lambda: file.is_file() and len(file.read_text(encoding="utf-8").splitlines()) == 2,
                "both suites",
            )
    lines = {
        one["suite"]: one for one in map(json.loads, file.read_text(encoding="utf-8").splitlines())
    }
    assert lines["f"]["parts"] == {"found": 7.0}
    assert lines["s"]["parts"].keys() == {"correct"}
    assert (len(here.tools.opened), len(other.opened)) == (2, 3)


@pytest.mark.parametrize(
    ("tasks", "task", "words"),
    [
        (True, "", r"suite 's': .* set its task to one of sums, finds"),
        (True, "maths", r"suite 's': task = 'maths' is not one .* one of sums, finds"),
        (False, "sums", r"the recipe has only \[task\]: leave it out"),
    ],
)
async def test_a_suite_of_no_task_is_refused_with_the_fix(
    world: MakeWorld, tasks: bool, task: str, words: str
) -> None:
    here = await world(run=RUN)
    if tasks:
        two_tasks(here, here.tools)
        here.tables["tools"]["other"] = {"service": "127.0.0.1:1"}
    suites = [{"name": "s", "task": task, "source": "task.py:training", "n": 1}]
    with pytest.raises(StartupError, match=words):
        async with here.engine(engine={"evaluation": {"suites": suites}}):
            pass


async def test_two_tasks_on_one_address_are_refused(world: MakeWorld) -> None:
    here = await world(run=RUN)
    two_tasks(here, here.tools)
    with pytest.raises(RecipeError, match="make it one table"):
        async with here.engine():
            pass
