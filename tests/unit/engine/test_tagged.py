"""Tags in plain text."""

from __future__ import annotations

from typing import Any

import pytest

from engine.core.protocols.tagged import Tagged
from engine.types import Answer, Call, Calls, End, ToolSpec
from tests.support.codecs import END, ToyCodec
from tests.support.messages import assistant, call, tool, user
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
    ("text", "stop", "read"),
    [
        ("<python> 1+1 </python>", "</python>", {"tool": "python", "arguments": {"code": "1+1"}}),
        # A body may hold its own opening tag.
        ("<python>a<python>b</python>", "</python>",
         {"tool": "python", "arguments": {"code": "a<python>b"}}),
        # No argument name: the service reads the text.
        ("<search>q</search>", "</search>", {"tool": "search"}),
        ("1+1</python>", "</python>",
         {"tool": "python", "invalid_reason": "</python> without <python>"}),
        ("x```\n", "```\n", {"tool": "raw"}),
    ],
)  # fmt: skip
def test_calls(text: str, stop: str, read: dict[str, Any]) -> None:
    expected = Calls(calls=(Call(action=text, **read),))
    assert Tagged().decide(text, stop, view_of(TOOLS), CODEC) == expected


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
    task = Task(id="t", messages=(user(),))
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
    task = Task(id="t", messages=(user("1+1?"),))
    head, tail = protocol.frame("</python>", CODEC)
    rollout = [
        ("prompt", protocol.prompt(task, TOOLS, CODEC)),
        ("model", CODEC.encode("<python> 1+1</python>")),
        ("tool", [*head, *protocol.observation(["2"], CODEC), *tail]),
        ("model", CODEC.encode(f"<answer> 2</answer>{END}")),
    ]
    answered = assistant("<answer> 2</answer>")
    written = [*task.messages, assistant("<python> 1+1</python>"), tool("2"), answered]
    called = assistant(None, call("python", '{"code": "1+1"}'))
    structured = [*task.messages, called, tool([{"type": "text", "text": "2"}]), answered]
    assert protocol.demonstration(written, CODEC) == rollout
    assert protocol.demonstration(structured, CODEC) == rollout
    told = Tagged(system="Tools: {usage}")
    shown = told.demonstration(written, CODEC, TOOLS)[0]
    assert shown == ("prompt", told.prompt(task, TOOLS, CODEC))


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([user()], "a conversation needs"),
        ([assistant("a")], "a conversation needs"),
        ([user(), assistant("a"), user()], "message of 'user' after the first assistant message"),
        ([user(), assistant(None, call("python", {"a": 1, "b": 2}))], "'python' has 2 arguments"),
        ([user(), assistant(None, call("python", "{"))], "'python'"),
        ([user(), assistant(3)], "content that is not text"),
    ],
)
def test_conversations_that_do_not_fit(messages: list[dict[str, object]], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Tagged().demonstration(messages, CODEC)
