"""Whose an action is, in a session of several tools."""

from __future__ import annotations

import json
from typing import Any

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
BOTH = (tag("bash"), ALIKE)
ZOOM = json_call("zoom")
A1 = {"arguments": {"a": 1}}
WITHOUT = "</bash> without <bash>"
UNREAD = "<tool_call>?</tool_call>"


@pytest.mark.parametrize(
    ("text", "stop", "tools", "expected"),
    [
        # Each stop has its tool.
        ("<b>2</b>", "</b>", (tag("a"), tag("b")), {"tool": "b", "arguments": {"text": "2"}}),
        # Tools that end alike: the first that accepts.
        ("$ ls</bash>", "</bash>", BOTH, {"tool": "shell", "arguments": {"line": "ls"}}),
        ("<bash>$ ls</bash>", "</bash>", BOTH, {"tool": "bash", "arguments": {"text": "$ ls"}}),
        (
            "ls</bash>",
            "</bash>",
            BOTH,
            {"tool": "bash", "invalid_reason": "</bash> without <bash>"},
        ),
        # JSON calls name their tool, whichever comes first.
        (call_of("crop"), CALL_END, (ZOOM, json_call("crop", "two")), {"tool": "crop", **A1}),
        # A name that none of them has: the session says so, with all names.
        (call_of("fly"), CALL_END, (ZOOM, json_call("crop")), {"tool": "fly", **A1}),
        # A raw tool takes what no other reads, wherever it stands.
        (call_of("zoom"), CALL_END, (raw("free"), ZOOM), {"tool": "zoom", **A1}),
        (call_of("fly"), CALL_END, (ZOOM, raw("free", "two")), {"tool": "free"}),
        (UNREAD, CALL_END, (ZOOM, raw("free", "two")), {"tool": "free"}),
        # Of several raw tools only their service can tell.
        ("x</tool_call>", CALL_END, (raw("f", "two"), raw("g", "two")), {"service": "two"}),
        ("x</tool_call>", CALL_END, (raw("f", "two"), raw("g", "three")), {"tool": "f"}),
        # Nobody's stop: the service may know it.
        ("x</c>", "</c>", (tag("a"),), {}),
    ],
)
def test_the_first_tool_that_accepts(
    text: str, stop: str, tools: tuple[ToolSpec, ...], expected: dict[str, Any]
) -> None:
    assert read_call(text, stop, tools) == Call(action=text, **expected)


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
