"""Tags in plain text."""

from __future__ import annotations

import pytest

from engine.core.protocols.tagged import Tagged
from engine.types import Answer, Call, Calls, End, ToolSpec
from tests.support.codecs import END, ToyCodec
from tests.support.views import EMPTY, view_of
from toolwright.types import Task

CODEC = ToyCodec("<python>", "</python>", "<result>", "</result>", "<answer>", "</answer>")
PYTHON = ToolSpec(
    name="python", usage="usage of python", stop_strings=("</python>",), argument="code",
    open_tag="<python>", close_tag="</python>",
)  # fmt: skip
SEARCH = ToolSpec(
    name="search", usage="usage of search", stop_strings=("</search>", "</find>"),
    open_tag="<search>", close_tag="</search>",
)  # fmt: skip
RAW = ToolSpec(name="raw", stop_strings=("```\n",))
TOOLS = (PYTHON, SEARCH, RAW)


def test_stops_are_the_tools_and_the_end_of_the_turn() -> None:
    assert Tagged().stops(TOOLS, CODEC) == ("</python>", "</search>", "</find>", "```\n", END)
    assert Tagged(answer_stops=True).stops((PYTHON, PYTHON), CODEC) == (
        "</python>", "</answer>", END,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "stop", "expected"),
    [
        (
            "think <python> 1+1 </python>",
            "</python>",
            Call(action="think <python> 1+1 </python>", tool="python", arguments={"code": "1+1"}),
        ),
        (  # a body may hold its own opening tag
            "<python>a<python>b</python>",
            "</python>",
            Call(
                action="<python>a<python>b</python>",
                tool="python",
                arguments={"code": "a<python>b"},
            ),
        ),
        (  # no argument name: the service reads the text
            "<search>q</search>",
            "</search>",
            Call(action="<search>q</search>", tool="search"),
        ),
        (
            "1+1</python>",
            "</python>",
            Call(action="1+1</python>", tool="python", invalid_reason="</python> without <python>"),
        ),
        ("x```\n", "```\n", Call(action="x```\n", tool="raw")),
    ],
)
def test_calls(text: str, stop: str, expected: Call) -> None:
    assert Tagged().decide(text, stop, view_of(TOOLS), CODEC) == Calls(calls=(expected,))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"so <answer> 42 </answer>{END}", Answer(text="42")),
        (f"<answer>1</answer> no <answer>2</answer> yes{END}", Answer(text="2")),
        (f"<answer>1{END}", End()),
        (f"1</answer>{END}", End()),
        (f"hello{END}", End()),
        (f" \n{END}", EMPTY),
        (END, EMPTY),
    ],
)
def test_ends(text: str, expected: Answer | End) -> None:
    assert Tagged().decide(text, END, view_of(TOOLS), CODEC) == expected


def test_an_answer_that_stops() -> None:
    protocol = Tagged(answer_stops=True)
    assert protocol.decide("<answer>7</answer>", "</answer>", view_of(TOOLS), CODEC) == Answer(
        text="7"
    )


def test_the_observation_is_framed_as_text() -> None:
    protocol = Tagged()
    head, tail = protocol.frame("</python>", CODEC)
    body = protocol.observation(["2", "3"], CODEC)
    assert CODEC.decode([*head, *body, *tail]) == "<result> 2\n3</result>"
    other = Tagged(observation="\nOut: {text}\n")
    head, tail = other.frame(None, CODEC)
    assert (CODEC.decode(head), CODEC.decode(tail)) == ("\nOut: ", "\n")


def test_an_observation_without_its_text_is_refused() -> None:
    with pytest.raises(ValueError, match=r"needs \{text\}"):
        Tagged(observation="<result>")


def test_prompts() -> None:
    task = Task(id="t", messages=({"role": "user", "content": "q"},))
    text = CODEC.decode(Tagged().prompt(task, TOOLS, CODEC))
    assert text == f"<|im_start|>user\nq{END}\n<|im_start|>assistant\n"
    raw = CODEC.decode(Tagged().prompt(Task(id="t", prompt="q"), TOOLS, CODEC))
    assert raw == text
    told = CODEC.decode(Tagged(system="Tools: {usage}!").prompt(task, TOOLS, CODEC))
    assert told.startswith(
        f"<|im_start|>system\nTools: usage of python\n\nusage of search!{END}\n<|im_start|>user"
    )


def test_a_demonstration_is_token_for_token_what_a_rollout_writes() -> None:
    protocol = Tagged()
    task = Task(id="t", messages=({"role": "user", "content": "1+1?"},))
    head, tail = protocol.frame("</python>", CODEC)
    rollout = [
        ("prompt", protocol.prompt(task, TOOLS, CODEC)),
        ("model", CODEC.encode("<python> 1+1</python>")),
        ("tool", [*head, *protocol.observation(["2"], CODEC), *tail]),
        ("model", CODEC.encode(f"<answer> 2</answer>{END}")),
    ]
    written = [
        *task.messages,
        {"role": "assistant", "content": "<python> 1+1</python>"},
        {"role": "tool", "content": "2"},
        {"role": "assistant", "content": "<answer> 2</answer>"},
    ]
    structured = [
        *task.messages,
        {
            "role": "assistant",
            "tool_calls": [{"function": {"name": "python", "arguments": '{"code": "1+1"}'}}],
        },
        {"role": "tool", "content": [{"type": "text", "text": "2"}]},
        {"role": "assistant", "content": "<answer> 2</answer>"},
    ]
    assert protocol.demonstration(written, CODEC) == rollout
    assert protocol.demonstration(structured, CODEC) == rollout
    told = Tagged(system="Tools: {usage}")
    assert told.demonstration(written, CODEC, TOOLS)[0] == (
        "prompt",
        told.prompt(task, TOOLS, CODEC),
    )


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([{"role": "user", "content": "q"}], "a conversation needs"),
        ([{"role": "assistant", "content": "a"}], "a conversation needs"),
        (
            [
                {"role": "user", "content": "q"},
                {"role": "assistant", "content": "a"},
                {"role": "user", "content": "q"},
            ],
            "message of 'user' after the first assistant message",
        ),
        (
            [
                {"role": "user", "content": "q"},
                {
                    "role": "assistant",
                    "tool_calls": [{"name": "python", "arguments": {"a": 1, "b": 2}}],
                },
            ],
            "'python' has 2 arguments",
        ),
        (
            [
                {"role": "user", "content": "q"},
                {"role": "assistant", "tool_calls": [{"name": "python", "arguments": "{"}]},
            ],
            "'python'",
        ),
        (
            [{"role": "user", "content": "q"}, {"role": "assistant", "content": 3}],
            "content that is not text",
        ),
    ],
)
def test_conversations_that_do_not_fit(messages: list[dict[str, object]], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Tagged().demonstration(messages, CODEC)
