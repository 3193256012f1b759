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
from toolwright.types import Author, StopReason, Trajectory

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
            "reward": str(RECIPE / "score.py:Score"),
            "group_hook": str(RECIPE / "hook.py:Hook"),
            "group_hook_options": {"memory": memory},
            "limits": limits,
            "tools": ["made"],
        },
    }


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
