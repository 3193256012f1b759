"""SEARL through real processes: engine, `toolsvc serve`, `memory serve`; the policy is scripted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest

from bench.scripted import ScriptRequest
from tests.integration.engine.conftest import MakeWorld, World
from tests.integration.engine.test_tool_lines import call
from tests.support.dialogue import said
from tests.support.memory_service import group, made, memory_process
from toolwright.memory.v1 import memory_pb2 as pb
from toolwright.memory.v1 import memory_pb2_grpc
from toolwright.types import Author, StopReason, Trajectory, WeightVersion

pytestmark = pytest.mark.slow

SMALL = ("--ready", "1", "--shards", "1", "--memory-mib", "192")
RECIPE = Path(__file__).parents[3] / "recipes" / "searl"


def plan(variant: int) -> str:
    return f"##DAG_LIST\n[(ST1,)]\n##ST1: way {variant}\n1. square of a number\n<|im_end|>"


def step(action: str) -> str:
    return f"<subtask> ST1: x</subtask><thinking> y</thinking>{action}"


def make(name: str, description: str, body: str) -> str:
    return step(
        call(
            "create_and_execute",
            name=name,
            description=description,
            arguments={"n": {"type": "integer"}},
            code=f"def {name}(n):\n    return {body}",
            inputs={"n": 3},
        )
    )


def answer(value: int) -> str:
    return step(f"<answer> \\boxed{{{value}}}</answer>")


def say(here: World, ways: Sequence[Sequence[str]]) -> None:
    """Rollout number k writes plan k and then the replies of ways[k]."""
    given = iter(range(len(ways)))

    def script(request: ScriptRequest) -> Sequence[int]:
        text = here.codec.decode(request.input_ids)
        asked = text.rpartition("<|im_start|>user")[2]
        _, planned, rest = asked.partition("##ST1: way ")
        if not planned:
            reply = plan(next(given))
        else:
            replies = ways[int(rest.partition("\n")[0])]
            reply = replies[min(asked.count("<|im_start|>tool"), len(replies) - 1)]
        return here.codec.encode(reply)[said(here.codec, text, reply) :]

    here.sampler._script = script


def recipe(memory: str, groups: int, size: int) -> dict[str, Any]:
    limits = {"turns": 5, "action": 2048, "observation": 2048, "response": 12000, "model": 16000}
    return {
        "run": {"steps": 1, "groups_per_step": groups, "group_size": size},
        "engine": {"max_concurrent": size},
        "task": {
            "protocol": str(RECIPE / "protocol.py:Searl"),
            "reward": str(RECIPE / "score.py:SearlReward"),
            "group_hook": str(RECIPE / "hook.py:MemoryHook"),
            "group_hook_options": {"memory": memory},
            "limits": limits,
            "tools": ["made"],
        },
    }


LATE_HOOK = f"""
import asyncio
from pathlib import Path

from toolwright.imports import load_object

Hook = load_object({str(RECIPE / "hook.py:MemoryHook")!r}, Path("/"))


class Late(Hook):
    def __init__(self, *, late, **options):
        super().__init__(**options)
        self._late = late

    async def __call__(self, group):
        if group[0].group_id == self._late:
            await asyncio.sleep(2.0)
        return await super().__call__(group)
"""


async def rolled_out(here: World, memory: str, groups: int, size: int) -> list[Trajectory]:
    """In the order of their tasks; one group after the other."""
    serve = ["create_and_execute", f"memory:{memory}", *SMALL]
    here.tables["tools"] = {"made": {"serve": serve, "run_limit_s": 30.0}}
    here.tables["task"].pop("protocol_options", None)
    async with here.engine(**recipe(memory, groups, size)) as run:
        version = await run.learner.version()
        found = await run.learner.lease(version, count=groups, wait=60)
    assert len(found) == groups
    return sorted((t for one in found for t in one.members), key=lambda t: t.id)


async def test_two_names_of_one_tool_share_an_anchor(world: MakeWorld, tmp_path: Path) -> None:
    """Neither is the best's: it is the third rollout's tool that is registered."""
    with memory_process(tmp_path / "m.sqlite") as memory:
        here = await world()
        say(
            here,
            [
                [make("square", "square of a number", "n * n"), answer(5)],
                [make("squared", "square of a number", "n ** 2"), answer(6)],
                [make("one_more", "successor of an integer", "n - 2"), answer(1)],
            ],
        )
        first, second, best = await rolled_out(here, memory.address, 1, 3)
        assert (first.reward, second.reward, best.reward) == (0.0, 0.0, 1.0)
        assert first.anchors[1] == second.anchors[1] != best.anchors[1]
        assert best.stop_reason is StopReason.ANSWERED
        authors = [segment.author for segment in best.sequences[0].segments]
        assert authors == [
            Author.PROMPT,
            Author.MODEL,
            Author.SYSTEM,
            Author.MODEL,
            Author.TOOL,
            Author.MODEL,
        ]
        parts = {(part.name, part.turn): part.value for part in best.reward_parts}
        assert parts == {
            ("answer", None): 1.0,
            ("plan", 0): 0.1,
            ("format", 1): 0.1,
            ("create", 1): 0.1,
            ("execute", 1): 0.1,
            ("format", 2): 0.1,
        }
        with grpc.insecure_channel(memory.address) as to:
            held = memory_pb2_grpc.MemoryServiceStub(to).Snapshot(pb.SnapshotRequest(), timeout=10)
        assert [node.name for node in held.nodes] == ["one_more"]


async def test_a_tool_of_another_run_is_recommended_and_called(
    world: MakeWorld, tmp_path: Path
) -> None:
    square = made("square", "square of a number", "def square(n):\n    return n * n")
    with (
        memory_process(tmp_path / "m.sqlite") as memory,
        grpc.insecure_channel(memory.address) as channel,
    ):
        stub = memory_pb2_grpc.MemoryServiceStub(channel)
        stub.MergeGroup(group("another run/g1", [square]), timeout=10)
        here = await world()
        again = make("again", "square of a number", "n * n")
        say(here, [[step(call("square", n=7)), again, step(call("plan", queries=[])), answer(1)]])
        (user,) = await rolled_out(here, memory.address, 1, 1)
        held = stub.Snapshot(pb.SnapshotRequest(), timeout=10)
    recommended, used, _, refused = user.calls
    assert "- square(n: integer): square of a number" in recommended.outcome.observation
    assert recommended.outcome.metrics["retrieved"] == 1.0
    assert json.loads(used.outcome.observation)["execution_result"] == 49
    assert used.outcome.isolation not in ("", "none")
    assert not refused.outcome.valid  # a plan is made once, and not by the policy
    # The tool that it makes again is the one that was recommended.
    assert user.anchors[1] == user.anchors[2] == ("square",)
    assert {part.turn for part in user.reward_parts if part.name == "remade"} == {2}
    assert [e.data["version"] for e in user.events if e.kind == "memory_merged"] == [2.0]
    (node,) = held.nodes
    assert (node.name, list(node.aliases), node.support) == ("square", ["again"], 2)
    assert node.uses == node.successes == 2


async def test_rollouts_wait_for_a_memory_that_is_away(world: MakeWorld, tmp_path: Path) -> None:
    """It is killed before the first plan; what the policy sees is as if it had never been."""
    with memory_process(tmp_path / "m.sqlite") as memory:
        here = await world()
        say(here, [[make("square", "square of a number", "n * n"), answer(1)]])
        serve = ["create_and_execute", f"memory:{memory.address}", *SMALL]
        here.tables["tools"] = {"made": {"serve": serve, "run_limit_s": 30.0}}
        here.tables["task"].pop("protocol_options", None)
        async with here.engine(**recipe(memory.address, 1, 1)) as run:
            version = await run.learner.version()
            memory.kill()
            with memory_process(tmp_path / "m.sqlite", address=memory.address):
                (found,) = await run.learner.lease(version, count=1, wait=60)
    (member,) = found.members
    assert member.stop_reason is StopReason.ANSWERED
    assert "does not answer" not in "".join(call.outcome.observation for call in member.calls)
    assert [e.kind for e in member.events].count("memory_merged") == 1


QUESTIONS = {
    "what is 0+1?": make("plus", "sum of two numbers", "n + 1"),
    "what is 1+1?": make("add", "sum of two numbers", "1 + n"),
    "what is 2+1?": make("plus", "product of all digits", "n * 1"),
}


@pytest.mark.slow
async def test_two_completion_orders_make_one_graph(world: MakeWorld, tmp_path: Path) -> None:
    """The same three groups; in one run the first ends last. All plans of an iteration see one
    version, that of their weights, and the next iteration sees the same in both runs."""

    def script(here: World) -> Any:
        def written(request: ScriptRequest) -> Sequence[int]:
            text = here.codec.decode(request.input_ids)
            asked = text.rpartition("<|im_start|>user")[2]
            tool = next((QUESTIONS[one] for one in QUESTIONS if one in asked), answer(1))
            replies = [plan(0), tool, answer(1)]
            turn = min(text.count("<|im_start|>assistant") - 1, len(replies) - 1)
            return here.codec.encode(replies[turn])[said(here.codec, text, replies[turn]) :]

        return written

    found = []
    for late in ("g0000000", "g0000002"):
        here = await world()
        here.sampler._script = script(here)
        here.folder = tmp_path / late
        here.folder.mkdir()
        (here.folder / "late.py").write_text(LATE_HOOK, encoding="utf-8")
        with memory_process(here.folder / "m.sqlite") as memory:
            serve = ["create_and_execute", f"memory:{memory.address}", *SMALL]
            here.tables["tools"] = {"made": {"serve": serve, "run_limit_s": 30.0}}
            here.tables["task"].pop("protocol_options", None)
            changes = recipe(memory.address, 3, 2)
            changes["run"]["steps"] = 2
            changes["task"]["group_hook"] = str(here.folder / "late.py:Late")
            changes["task"]["group_hook_options"]["late"] = late
            changes["task"]["metadata"] = {"memory_iteration": "{iteration}"}
            async with here.engine(**changes) as run:
                version = await run.learner.version()
                first = await run.learner.lease(version, count=3, wait=60)
                newer = WeightVersion(lineage=version.lineage, step=1)
                await run.learner.publish(newer, here.weights("1"))
                last = first[-1].info.sequence_number
                second = await run.learner.lease(newer, after=last, count=3, wait=60)
            with grpc.insecure_channel(memory.address) as to:
                stub = memory_pb2_grpc.MemoryServiceStub(to)
                asked = pb.RetrieveRequest(question="x", iteration=f"{version.lineage}.1")
                seen = stub.Retrieve(asked, timeout=10).version
                held = stub.Snapshot(pb.SnapshotRequest(version=seen), timeout=10)
        orders = [one.info.id for one in first]
        assert orders[-1] == late and len(orders) == 3
        for groups, expected in ((first, 1.0), (second, float(seen))):
            plans = [m.calls[0] for one in groups for m in one.members]
            assert {call.outcome.metrics["memory_version"] for call in plans} == {expected}
        assert not any(m.calls[0].outcome.metrics["retrieved"] for g in first for m in g.members)
        shown = {m.calls[0].outcome.observation for g in second for m in g.members}
        nodes = [
            (node.name, node.code, list(node.aliases), node.id, node.support, node.uses)
            for node in held.nodes
        ]
        edges = [(getattr(edge, "from"), edge.to) for edge in held.edges]
        found.append((nodes, edges, sorted(text.rpartition("Recommended")[2] for text in shown)))
    assert found[0] == found[1]
    nodes = found[0][0]
    assert [node[0] for node in nodes][:1] == ["plus"] and len(nodes) == 2
    assert nodes[0][2] == ["add"], "the first group's tool stands, whichever group ended first"
