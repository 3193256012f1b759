"""What the group hook tells the memory, and what steps stand for. The memory itself is real in
tests/integration/searl."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.recipes import Part
from tests.unit.searl.conftest import PLAN, answering, making, ran, step
from toolwright import json_data
from toolwright.types import RewardPart, Status, Task, ToolErrorKind, Trajectory


def request(part: Part, *group: Trajectory, **options: Any) -> Any:
    hook = part("hook.MemoryHook")(memory="127.0.0.1:1", **options)
    words = part("course.Words")()
    courses = {one.id: part("course.read")(one, words) for one in group}
    return hook.request(group, courses)


def test_what_a_rollout_made_and_called(part: Part) -> None:
    trajectory = ran(
        PLAN,
        making("f", subtask=1),
        making("g", subtask=2),
        step("f", subtask=2, n=1),
        step("old", subtask=2, n=1),
        step("python", subtask=2, code="1"),
        answering(4),
        recommended=["old", "idle"],
        added=["f"],
        errors=[ToolErrorKind.NONE, ToolErrorKind.EXCEPTION, ToolErrorKind.EXCEPTION],
    )
    asked = request(part, trajectory)
    (rollout,) = asked.rollouts
    assert [(one.name, one.description) for one in rollout.candidates] == [("f", "what f does")]
    assert {use.name: (use.calls, use.successes) for use in rollout.uses} == {
        "old": (1, 1),
        "idle": (0, 0),
        "f": (2, 1),
    }
    edges = {(getattr(edge, "from"), edge.to) for edge in rollout.edges}
    assert edges == {("f", "old")}
    assert {"create_and_execute", "plan", "python"} <= set(asked.reserved)
    assert asked.registers == trajectory.id
    assert dict(asked.counts) == {
        "rollouts": 1,
        "created": 1,
        "refused": 0,
        "retrieved": 0,
        "called": 1,
        "reusing": 1,
    }


def test_a_call_that_no_tool_has_seen_stands_for_nothing(part: Part) -> None:
    """And its name is free for a tool of another rollout."""
    wrong = ran(PLAN, step("f"), answering(4), errors=[ToolErrorKind.INVALID_ACTION])
    assert "f" not in request(part, wrong).reserved
    once = ran(PLAN, making("f"), making("f", inputs={"n": 2}), answering(4), added=["f"])
    (rollout,) = request(part, once).rollouts
    assert [one.name for one in rollout.candidates] == ["f"]
    assert [(use.name, use.calls) for use in rollout.uses] == [("f", 2)]


def test_the_best_registers_if_it_is_good_enough(part: Part) -> None:
    steps = tuple(RewardPart(name="execute", value=0.1, turn=turn) for turn in (1, 2))
    poor = ran(PLAN, answering(4), number=0, reward=1.0)
    best = ran(PLAN, answering(4), number=1, reward=1.0, reward_parts=steps)
    assert request(part, poor, best).registers == "g-1"
    assert request(part, best, poor, min_reward_to_register=1.0).registers == "g-1"
    assert request(part, best, poor, min_reward_to_register=1.5).registers == ""
    assert request(part, best, poor, register=False).registers == ""


def test_a_groups_key_is_its_content(part: Part) -> None:
    one, other = ran(PLAN, making("f"), added=["f"]), ran(PLAN, making("g"), added=["g"])
    assert request(part, one).group == request(part, one).group
    assert request(part, one).group != request(part, other).group
    assert request(part, one).group.startswith("none/g/")


async def test_without_a_memory_names_are_the_anchors(part: Part) -> None:
    texts = (PLAN, making("f"), step("f", n=1), step("python", code="1"), step("cube"), "words")
    trajectory = ran(
        *texts, added=["f"], errors=[*[ToolErrorKind.NONE] * 3, ToolErrorKind.UNKNOWN_TOOL]
    )
    dead = ran(PLAN, number=1, status=Status.ERRORED)
    scored, none = await part("hook.MemoryHook")(plan_anchor=True)([trajectory, dead])
    assert none is None
    assert scored.anchors == {0: ("plan",), 1: ("f",), 2: ("f",), 3: ("python",)}
    (scored,) = await part("hook.MemoryHook")(anchor_base_tools=False)([trajectory])
    assert scored.anchors == {1: ("f",), 2: ("f",)}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"mode": "best"}, "mode"),
        ({"holes": "fill"}, "holes"),
        ({"memry": ""}, "memry"),
    ],
)
def test_options_that_do_not_fit(part: Part, options: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        part("hook.MemoryHook")(**options)


def test_a_group_belongs_to_the_iteration_of_its_task(part: Part) -> None:
    """Groups of a resumed run go on under the name of the run, so that they have one order."""
    task = Task(id="t", answers=("4",), metadata={"memory_iteration": "run.7"})
    asked = request(part, ran(PLAN, making("f"), added=["f"], task=task))
    assert asked.iteration == "run.7" and asked.group.startswith("run/g/")
    for metadata in ({}, {"memory_iteration": ""}):
        task = Task(id="t", answers=("4",), metadata=metadata)
        asked = request(part, ran(PLAN, making("f"), added=["f"], task=task))
        assert not asked.HasField("iteration") and asked.group.startswith("none/g/")


def test_a_candidate_that_words_describe(part: Part) -> None:
    """As in the paper's listing 1, under its published name."""
    code = "def mix(a, b, share=0.5):\n    return a * share + b * (1 - share)"
    words = "a, b (float)"
    text = making("mix", arguments=words, code=code, inputs={"a": 1, "b": 3}, returns="a mean")
    published = text.replace('"create_and_execute"', '"create_and_execute_mcp"')
    for said in (text, published):
        asked = request(part, ran(PLAN, said, answering(4), added=["mix"]))
        assert {"create_and_execute", "create_and_execute_mcp"} <= set(asked.reserved)
        (candidate,) = asked.rollouts[0].candidates
        assert (candidate.name, candidate.arguments) == ("mix", words)
        schema = json_data.mapping(candidate.arguments_schema)
        number = {"type": "number"}
        assert schema["properties"] == {"a": number, "b": number, "share": {}}
        assert schema["required"] == ["a", "b"]
    assert asked.counts["created"] == 1
