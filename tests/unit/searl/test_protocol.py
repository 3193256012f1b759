"""How SEARL's agent is understood: the plan, the execution prompt, steps."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.types import Answer, Call, Calls, Say, ToolSpec, View
from tests.support.codecs import ToyCodec
from tests.support.recipes import Part
from tests.unit.searl.conftest import PLAN, answering, step
from toolwright.types import Author, Task

CODEC = ToyCodec()
PYTHON = ToolSpec(
    name="python",
    description="Runs {plan}",
    arguments_schema={"type": "object", "properties": {"code": {"type": "string"}}},
)
PLANNER = ToolSpec(name="plan")


def view(turn: int = 0, *tools: ToolSpec, question: str = "What is {tools}?") -> View:
    return View(
        task=Task(id="t", messages=({"role": "user", "content": question},)),
        turn=turn,
        actions=("x",) * turn,
        calls=(),
        events=(),
        tools=tools,
    )


def test_a_plan_asks_the_memory_once(part: Part) -> None:
    protocol = part("protocol.Searl")()
    decided = protocol.decide(PLAN + "<|im_end|>", "<|im_end|>", view(0, PYTHON, PLANNER), CODEC)
    (call,) = decided.calls
    assert call.tool == "plan"
    assert call.arguments["queries"] == ["square a number", "add one"]
    assert "- python(code: string): Runs {plan}\n" in call.arguments["head"]
    assert "What is {tools}?" in call.arguments["head"]  # words of strangers stay words
    assert "plan(" not in call.arguments["head"]
    titled = part("protocol.Searl")(query="title")
    decided = titled.decide(PLAN, "<|im_end|>", view(0, PLANNER), CODEC)
    assert decided.calls[0].arguments["queries"][0] == "first\nsquare a number"


@pytest.mark.parametrize("options", [{}, {"memory": False}])
def test_without_a_memory_the_protocol_speaks(part: Part, options: dict[str, Any]) -> None:
    protocol = part("protocol.Searl")(**options)
    tools = (PYTHON,) if not options else (PYTHON, PLANNER)
    said = protocol.decide(PLAN, "<|im_end|>", view(0, *tools), CODEC)
    assert isinstance(said, Say)
    assert (said.author, said.budget) == (Author.SYSTEM, 4096)
    assert "(none yet)" in said.text


def test_a_plan_that_cannot_be_read_is_the_whole_task(part: Part) -> None:
    protocol = part("protocol.Searl")()
    (call,) = protocol.decide("no plan", "<|im_end|>", view(0, PLANNER), CODEC).calls
    assert call.arguments["queries"] == ["no plan"]
    assert "##ST1: What is {tools}?" in call.arguments["head"]
    (call,) = protocol.decide("", "<|im_end|>", view(0, PLANNER), CODEC).calls
    assert call.arguments["queries"] == ["What is {tools}?"]


def test_steps_are_calls_and_answers(part: Part) -> None:
    protocol = part("protocol.Searl")()
    decided = protocol.decide(step("python", code="1"), "</tool_call>", view(1, PYTHON), CODEC)
    assert isinstance(decided, Calls)
    assert (decided.calls[0].tool, decided.calls[0].arguments) == ("python", {"code": "1"})
    decided = protocol.decide(answering(4), "</answer>", view(1), CODEC)
    assert decided == Answer(text="4")
    planned = protocol.decide(step("plan", queries=[]), "</tool_call>", view(1, PLANNER), CODEC)
    assert "there is no tool 'plan'" in planned.calls[0].invalid_reason


def test_tags_are_options(part: Part) -> None:
    protocol = part("protocol.Searl")(tags={"call": "use", "answer": "final"})
    assert protocol.stops((), CODEC) == ("</use>", "</final>", "<|im_end|>")
    text = '<use>{"name": "python", "arguments": {}}</use>'
    (call,) = protocol.decide(text, "</use>", view(1, PYTHON), CODEC).calls
    assert call.tool == "python"
    with pytest.raises(ValueError, match="cal"):
        part("protocol.Searl")(tags={"cal": "x"})
    with pytest.raises(ValueError, match="query"):
        part("protocol.Searl")(query="all")


@given(
    st.text(alphabet='<>/subtaskhinkganwertol_c{}[]"\\:,#DAGLIST12.( )\n', max_size=300),
    st.sampled_from(["</tool_call>", "</answer>", "<|im_end|>"]),
    st.integers(0, 2),
)
def test_nothing_that_a_policy_writes_raises(part: Part, text: str, stop: str, turn: int) -> None:
    decided = part("protocol.Searl")().decide(text, stop, view(turn, PYTHON, PLANNER), CODEC)
    if isinstance(decided, Calls) and turn == 0 and stop == "</tool_call>":
        assert all(isinstance(one, Call) for one in decided.calls)


OURS, PUBLISHED = "create_and_execute", "create_and_execute_mcp"


@pytest.mark.parametrize(
    ("has", "says", "calls"),
    [
        (OURS, PUBLISHED, OURS),
        (OURS, OURS, OURS),
        (PUBLISHED, OURS, PUBLISHED),
        (PUBLISHED, PUBLISHED, PUBLISHED),
        ("python", PUBLISHED, OURS),
    ],
)
def test_a_tool_is_made_under_the_published_name_too(
    part: Part, has: str, says: str, calls: str
) -> None:
    protocol = part("protocol.Searl")(memory=False)
    here = view(1, ToolSpec(name=has))
    decided = protocol.decide(step(says, name="f"), "</tool_call>", here, CODEC)
    (call,) = decided.calls
    assert (call.tool, call.arguments) == (calls, {"name": "f"})
    said = protocol.decide(PLAN, "<|im_end|>", view(0, ToolSpec(name=has)), CODEC)
    assert f'{{"name": "{calls}"' in said.text
