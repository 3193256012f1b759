"""Whose an action is, in a session of several tools."""

from __future__ import annotations

import json

import pytest

from engine.core.protocols.actions import read_call
from engine.core.protocols.chat import Chat
from engine.types import Call, ToolSpec
from tests.support.codecs import ToyCodec
from tests.support.views import view_of

CODEC = ToyCodec()
CALL_END = "</tool_call>"


def tag(name: str, service: str = "one") -> ToolSpec:
    return ToolSpec(
        name=name, service=service, stop_strings=(f"</{name}>",), open_tag=f"<{name}>",
        close_tag=f"</{name}>", argument="text",
    )  # fmt: skip


def json_call(name: str, service: str = "one") -> ToolSpec:
    return ToolSpec(
        name=name, service=service, stop_strings=(CALL_END,), open_tag="<tool_call>",
        close_tag=CALL_END, json_call=True,
    )  # fmt: skip


def raw(name: str, service: str = "one") -> ToolSpec:
    return ToolSpec(name=name, service=service, stop_strings=(CALL_END,))


def call_of(name: str) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': {'a': 1}})}{CALL_END}"


ALIKE = ToolSpec(
    name="shell", service="two", stop_strings=("</bash>",), open_tag="$", close_tag="</bash>",
    argument="line",
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "stop", "tools", "expected"),
    [
        # Each stop has its tool.
        ("<b>2</b>", "</b>", (tag("a"), tag("b")), Call(action="<b>2</b>", tool="b",
                                                        arguments={"text": "2"})),
        # Tools that end alike: the first that accepts.
        ("$ ls</bash>", "</bash>", (tag("bash"), ALIKE),
         Call(action="$ ls</bash>", tool="shell", arguments={"line": "ls"})),
        ("<bash>$ ls</bash>", "</bash>", (tag("bash"), ALIKE),
         Call(action="<bash>$ ls</bash>", tool="bash", arguments={"text": "$ ls"})),
        ("ls</bash>", "</bash>", (tag("bash"), ALIKE),
         Call(action="ls</bash>", tool="bash", invalid_reason="</bash> without <bash>")),
        # JSON calls name their tool, whichever comes first.
        (call_of("crop"), CALL_END, (json_call("zoom"), json_call("crop", "two")),
         Call(action=call_of("crop"), tool="crop", arguments={"a": 1})),
        # A name that none of them has: the session says so, with all names.
        (call_of("fly"), CALL_END, (json_call("zoom"), json_call("crop")),
         Call(action=call_of("fly"), tool="fly", arguments={"a": 1})),
        # A raw tool takes what no other reads, wherever it stands.
        (call_of("zoom"), CALL_END, (raw("free"), json_call("zoom", "two")),
         Call(action=call_of("zoom"), tool="zoom", arguments={"a": 1})),
        (call_of("fly"), CALL_END, (json_call("zoom"), raw("free", "two")),
         Call(action=call_of("fly"), tool="free")),
        ("<tool_call>?</tool_call>", CALL_END, (json_call("zoom"), raw("free", "two")),
         Call(action="<tool_call>?</tool_call>", tool="free")),
        # Of several raw tools only their service can tell.
        ("x</tool_call>", CALL_END, (raw("f", "two"), raw("g", "two")),
         Call(action="x</tool_call>", service="two")),
        ("x</tool_call>", CALL_END, (raw("f", "two"), raw("g", "three")),
         Call(action="x</tool_call>", tool="f")),
        # Nobody's stop: the service may know it.
        ("x</c>", "</c>", (tag("a"),), Call(action="x</c>")),
    ],
)  # fmt: skip
def test_the_first_tool_that_accepts(
    text: str, stop: str, tools: tuple[ToolSpec, ...], expected: Call
) -> None:
    assert read_call(text, stop, tools) == expected


def test_in_chat_any_tool_is_called_by_its_name() -> None:
    for name in ("a", "zoom"):
        view = view_of((tag("a"), json_call("zoom")))
        (call,) = Chat().decide(call_of(name), CALL_END, view, CODEC).calls
        assert (call.tool, call.arguments, call.invalid_reason) == (name, {"a": 1}, "")


def test_in_chat_a_tag_is_its_tools_and_an_unknown_name_a_raw_tools() -> None:
    tools = (json_call("zoom"), tag("a", "two"), raw("free", "three"))
    assert Chat().decide("<a>1</a>", "</a>", view_of(tools), CODEC).calls == (
        Call(action="<a>1</a>", tool="a", arguments={"text": "1"}),
    )
    assert Chat().decide(call_of("fly"), CALL_END, view_of(tools), CODEC).calls == (
        Call(action=call_of("fly"), tool="free"),
    )
    (unknown,) = Chat().decide(call_of("fly"), CALL_END, view_of(tools[:2]), CODEC).calls
    assert unknown.tool == "fly"
