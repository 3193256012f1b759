"""How the agent of the mathematics task is understood: programs, the box, and where it ends."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.rollout.decide import Dispatch, Finish, Generate, Rules, next_step
from engine.types import Answer, Calls, End, ToolSpec
from tests.support.codecs import END, ToyCodec
from tests.support.linear import assert_linear
from tests.support.recipes import Part
from tests.support.views import EMPTY, view_of
from tests.support.written_logs import act, answer, append, call, opened
from tests.unit.verltool.math.conftest import BOXES, STOP, program
from toolsvc.plugin.actions import InvalidAction
from toolsvc.tools.python import fenced_code, plain_code
from toolwright.recipe import Limits
from toolwright.types import StopReason, Task

CODEC = ToyCodec("\n```", "```\n", STOP, r"\boxed{")
PYTHON = ToolSpec(name="python", usage="usage of python", stop_strings=(STOP,))
TAGGED = ToolSpec(
    name="python", stop_strings=("</python>",), open_tag="<python>", close_tag="</python>",
    argument="code",
)  # fmt: skip
ASKED = Task(id="t", messages=({"role": "user", "content": "What is 6*7?"},))


def decided(part: Part, text: str, stop: str, *before: str, tool: ToolSpec = PYTHON) -> Any:
    protocol = part("protocol.Programs")()
    return protocol.decide(text, stop, view_of((tool,), actions=before), CODEC)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (program("x = 6\nprint(x*7)"), "x = 6\nprint(x*7)"),
        ("```py\n1\n```\n```output", "1"),
        ("```python\n1\n```\n\n  ```output", "1"),
        ("```python\r\n1\r\n```\r\n```output", "1"),
        ("  ```python\n  if 1:\n    2\n  ```\n```output", "if 1:\n  2"),
        ("```python \n1\n```output", "1"),
        ("```python\na=1\n``` and\n```py\na\n```\n```output", "a=1\na"),
        ("```json\n{}\n```\n```python\n1\n```\n```output", "1"),
        ("```python\n'\\boxed{1}'\n```\n```output", "'\\boxed{1}'"),
        ("so ```output", None),
        ("```python 1```\n```output", None),
        ("print(1)\n```output", None),
        ("<python>1</python>\n```output", None),
    ],
)
def test_a_program_goes_to_the_tool_as_it_was_written(
    part: Part, text: str, code: str | None
) -> None:
    made = decided(part, text, STOP)
    assert isinstance(made, Calls)
    (one,) = made.calls
    assert (one.action, one.tool) == (text, "python")
    if code is None:
        with pytest.raises(InvalidAction):
            fenced_code(one.action)
    else:
        assert fenced_code(one.action).split() == code.split()


def test_with_tags_the_code_is_what_stands_between_them(part: Part) -> None:
    made = decided(part, "so <python> print(6*7)</python>", "</python>", tool=TAGGED)
    assert made.calls[0].arguments == {"code": "print(6*7)"}


@pytest.mark.parametrize(
    ("text", "before", "expected"),
    [
        (r"So it is \boxed{42}.", (), Answer(text="42")),
        (r"\boxed{\frac{1}{2}}", (program(),), Answer(text=r"\frac{1}{2}")),
        (r"\boxed{}", (), Answer(text="")),
        (r"\boxed{1} or \boxed{2}", (), Answer(text="2")),
        ("That proves it.", (r"\boxed{42}" + program(),), Answer(text="42")),
        (r"\boxed{2}", (r"\boxed{1}" + program(),), Answer(text="2")),
        ("```python\nprint(6*7)\n```\nThat is \\boxed{42}", (), Answer(text="42")),
        ("It is 42.", (program(),), End()),
        (r"\boxed{42", (), End()),
        ("```python\nprint(6*7)\n```", (), End()),
        ("<answer>42</answer>", (), End()),
        (" \n", (program(),), EMPTY),
        ("", (), EMPTY),
    ],
)
def test_the_end_of_the_turn_is_the_answer_or_the_end(
    part: Part, text: str, before: tuple[str, ...], expected: Answer | End
) -> None:
    assert decided(part, text + END, END, *before) == expected


def test_stops_are_the_tools_and_the_end_of_the_turn(part: Part) -> None:
    protocol = part("protocol.Programs")()
    assert protocol.stops((PYTHON,), CODEC) == (STOP, END)
    assert protocol.stops((TAGGED,), CODEC) == ("</python>", END)


def test_after_the_last_program_one_action_answers(part: Part) -> None:
    """Table 14's one turn of training: a second program is not run, and ends it."""
    rules = Rules(
        protocol=part("protocol.Programs")(),
        codec=CODEC,
        limits=Limits(turns=1, response=400, model=800),
        observation_keep="middle",
    )
    log = opened(tools=[PYTHON])
    act(log, program(), STOP)
    assert isinstance(next_step(log.state, rules, ASKED), Dispatch)
    answer(log, call(log))
    append(log)
    assert isinstance(next_step(log.state, rules, ASKED), Generate)
    act(log, r"\boxed{42}" + program(), STOP)
    assert next_step(log.state, rules, ASKED) == Finish(reason=StopReason.MAX_TURNS)


@pytest.mark.parametrize(
    ("style", "frame"),
    [("fenced", "\n42\n```\n"), ("tags", "\n<result>\n42\n</result>\n")],
)
def test_the_output_stands_where_the_prompt_says(part: Part, style: str, frame: str) -> None:
    protocol = part("protocol.Programs")(style=style)
    head, tail = protocol.frame(STOP, CODEC)
    assert CODEC.decode([*head, *protocol.observation(["42"], CODEC), *tail]) == frame


@pytest.mark.parametrize("style", ["fenced", "tags"])
def test_the_prompts_example_is_a_program(part: Part, style: str) -> None:
    said, asked = part("protocol.Programs")(style=style).opening(ASKED, [PYTHON])
    text = said["content"]
    assert (said["role"], asked["content"]) == ("system", "What is 6*7?")
    if style == "fenced":
        code = fenced_code(text[: text.index(STOP)])
    else:
        code = plain_code(text.partition("<python>")[2].partition("</python>")[0])
    assert code == "print(2**40)"
    assert r"\boxed{}" in text and "{usage}" not in text


def test_a_recipe_may_say_its_own(part: Part) -> None:
    silent = part("protocol.Programs")(prompt="")
    assert silent.opening(ASKED, [PYTHON]) == list(ASKED.messages)
    own = part("protocol.Programs")(prompt="Compute. {usage}", observation="[{text}]")
    assert own.opening(ASKED, [PYTHON])[0]["content"] == "Compute. usage of python"
    assert [CODEC.decode(ids) for ids in own.frame(None, CODEC)] == ["[", "]"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"style": "xml"}, "'fenced' or 'tags'"),
        ({"style": ""}, "'fenced' or 'tags'"),
        ({"observation": "```"}, r"needs \{text\}"),
    ],
)
def test_an_option_that_is_none_is_refused(part: Part, options: dict[str, str], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        part("protocol.Programs")(**options)


def test_a_demonstration_is_token_for_token_what_a_rollout_has(part: Part) -> None:
    """Each piece is encoded by itself: joined, the fences at the seams would be other tokens."""
    protocol = part("protocol.Programs")()
    said = [
        {"role": "assistant", "content": program()},
        {"role": "tool", "content": "42"},
        {"role": "assistant", "content": r"\boxed{42}"},
    ]
    head, tail = protocol.frame(STOP, CODEC)
    whole = [
        ("prompt", protocol.prompt(ASKED, (PYTHON,), CODEC)),
        ("model", CODEC.encode(program())),
        ("tool", [*head, *protocol.observation(["42"], CODEC), *tail]),
        ("model", CODEC.encode(r"\boxed{42}" + END)),
    ]
    assert protocol.demonstration([*ASKED.messages, *said], CODEC, (PYTHON,)) == whole


@given(st.text(max_size=200), st.lists(st.text(max_size=80), max_size=2))
def test_nothing_that_a_policy_writes_raises(part: Part, text: str, before: list[str]) -> None:
    for stop in (STOP, END):
        decided(part, text + stop, stop, *before)


def test_reading_is_linear(part: Part) -> None:
    protocol = part("protocol.Programs")()
    here = view_of((PYTHON,))
    for stop in (STOP, END):
        assert_linear(
            lambda text, end=stop: protocol.decide(text + end, end, here, CODEC), texts=BOXES
        )
