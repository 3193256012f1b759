"""How a deep search agent is understood: which of its two tools, an answer, and what is neither."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.types import Answer, Call, Calls, End, ToolSpec, View
from tests.support.codecs import END, ToyCodec
from tests.support.recipes import Part
from toolwright.types import StopReason, Task

CODEC = ToyCodec()
PYTHON_END, SEARCH_END = "</python>", "</search>"
TOOLS = (
    ToolSpec(
        name="web_search",
        stop_strings=(SEARCH_END,),
        open_tag="<search>",
        close_tag=SEARCH_END,
        argument="query",
    ),
    ToolSpec(
        name="python",
        stop_strings=(PYTHON_END,),
        open_tag="<python>",
        close_tag=PYTHON_END,
        argument="code",
    ),
)
NOW = View(task=Task(id="t"), turn=0, actions=(), calls=(), events=(), tools=TOOLS)


def call_of(part: Part, text: str, stop: str) -> Call:
    decided = part("protocol.DeepSearch")().decide(text, stop, NOW, CODEC)
    assert isinstance(decided, Calls)
    (call,) = decided.calls
    assert call.action == text
    return call


def test_both_tools_stop_an_action_and_an_answer_does_not(part: Part) -> None:
    stops = part("protocol.DeepSearch")().stops(TOOLS, CODEC)
    assert set(stops) == {PYTHON_END, SEARCH_END, END}


@pytest.mark.parametrize(
    ("text", "tool", "argument"),
    [
        ("I look it up. <search> area of Chad </search>", "web_search", "area of Chad"),
        ("<python>\nprint(1)\n</python>", "python", "print(1)"),
        ("<search>area <python>print(2)</python>", "python", "print(2)"),
        ("<python>print(3) <search>Chad</search>", "web_search", "Chad"),
        ("<python>print('<python>')</python>", "python", "print('<python>')"),
        ("<answer>5</answer> or <search>Chad</search>", "web_search", "Chad"),
        ("<search></search>", "web_search", ""),
        ("<python>日本 \U0001f600</python>", "python", "日本 \U0001f600"),
    ],
)
def test_the_closing_tag_decides_which_tool_it_is(
    part: Part, text: str, tool: str, argument: str
) -> None:
    call = call_of(part, text, text[text.rindex("</") :])
    assert call.tool == tool
    assert list((call.arguments or {}).values()) == [argument]
    assert not call.invalid_reason


@pytest.mark.parametrize("stop", [PYTHON_END, SEARCH_END])
def test_a_closing_tag_without_its_opening_one_is_told(part: Part, stop: str) -> None:
    other = "<search>" if stop == PYTHON_END else "<python>"
    for text in (stop, f"{other}print(1){stop}"):
        opening = stop.replace("/", "")
        assert call_of(part, text, stop).invalid_reason == f"{stop} without {opening}"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (f"<answer>\\boxed{{42}}</answer>{END}", "\\boxed{42}"),
        (f"<answer>1</answer> no, <answer> 2 </answer>{END}", "2"),
        (f"<search>never closed <answer>3</answer>{END}", "3"),
        (f"<answer></answer>{END}", ""),
    ],
)
def test_the_last_answer_of_a_turn_that_ends_is_the_answer(
    part: Part, text: str, answer: str
) -> None:
    assert part("protocol.DeepSearch")().decide(text, END, NOW, CODEC) == Answer(text=answer)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"<browse>https://a.example</browse>{END}", StopReason.NO_ACTION_IN_OUTPUT),
        (f"<python>print(1){END}", StopReason.NO_ACTION_IN_OUTPUT),
        (f"<answer>never closed{END}", StopReason.NO_ACTION_IN_OUTPUT),
        (f"</answer><answer>{END}", StopReason.NO_ACTION_IN_OUTPUT),
        (f" \n{END}", StopReason.EMPTY_OUTPUT),
    ],
)
def test_what_is_neither_call_nor_answer_ends_it(part: Part, text: str, reason: StopReason) -> None:
    assert part("protocol.DeepSearch")().decide(text, END, NOW, CODEC) == End(reason=reason)


@given(st.lists(st.sampled_from(["<search>", "<python>", "<answer>", "</answer>", "x", "\x00"])))
def test_it_never_raises(part: Part, pieces: list[str]) -> None:
    protocol = part("protocol.DeepSearch")()
    for stop in (PYTHON_END, SEARCH_END, END):
        assert protocol.decide("".join(pieces) + stop, stop, NOW, CODEC) is not None


def test_the_prompt_shows_both_tools_and_the_box(part: Part) -> None:
    task = Task(id="t", messages=({"role": "user", "content": "How large is Chad?"},))
    told, asked = part("protocol.DeepSearch")().opening(task, TOOLS)
    assert told["role"] == "system" and asked["content"] == "How large is Chad?"
    for words in ("<search>", PYTHON_END, "<result>", "<answer>\\boxed{17.1}</answer>"):
        assert words in told["content"]
    assert part("protocol.DeepSearch")(prompt="").opening(task, TOOLS) == [asked]


def test_the_example_of_the_prompt_reckons_right(part: Part) -> None:
    text = part("protocol.PROMPTS")["agent"]
    program = text.rpartition("<python>")[2].partition(PYTHON_END)[0]
    printed: list[float] = []
    exec(program, {"print": printed.append})
    assert f"\\boxed{{{printed[0]:.1f}}}" in text


def test_a_demonstration_has_the_ids_of_a_rollout(part: Part) -> None:
    protocol = part("protocol.DeepSearch")(prompt="")
    messages = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "<search>a</search>"},
        {"role": "tool", "content": "found"},
        {"role": "assistant", "content": "<answer>\\boxed{1}</answer>"},
    ]
    runs = protocol.demonstration(messages, CODEC, TOOLS)
    assert [who for who, _ in runs] == ["prompt", "model", "tool", "model"]
    said = [CODEC.decode(ids) for _, ids in runs[1:]]
    assert said == [
        "<search>a</search>",
        "<result>found</result>",
        f"<answer>\\boxed{{1}}</answer>{END}",
    ]
