"""What `engine sample` exports for others is read back as it was, in both layouts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.offline.collect.layouts import NotExportable, to_hermes, to_openai
from engine.offline.conversations.functions import tools_in
from engine.offline.conversations.layouts import conversation

TEXT = st.text(st.sampled_from("ab <>/\n{}[]'\"\\é\U0001f600."), max_size=12)
NAME = st.text("abc", min_size=1, max_size=3)
VALUE = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)


def function(name: str, description: str) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {name: {"description": description}}}
    told = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": told}


@st.composite
def exported(draw: st.DrawFn) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Messages and tools as the engine tells them."""
    names = draw(st.lists(NAME, max_size=2, unique=True))
    messages: list[dict[str, Any]] = []
    if draw(st.booleans()):
        messages.append({"role": "system", "content": draw(TEXT)})
    messages.append({"role": "user", "content": draw(TEXT)})
    for turn in range(draw(st.integers(0, 2))):
        calls = [
            {
                "id": f"call_{turn}_{index}",
                "type": "function",
                "function": {
                    "name": draw(NAME),
                    "arguments": json.dumps(draw(st.dictionaries(TEXT, VALUE, max_size=2))),
                },
            }
            for index in range(draw(st.integers(1, 2)))
        ]
        said = draw(TEXT).rstrip()
        messages.append({"role": "assistant", "content": said, "tool_calls": calls})
        messages += [
            {"role": "tool", "tool_call_id": call["id"], "content": draw(TEXT)} for call in calls
        ]
    messages.append({"role": "assistant", "content": draw(TEXT)})
    return messages, [function(name, draw(TEXT)) for name in names]


def plain(messages: Any) -> list[Any]:
    """What counts. A system message loses blanks at its ends, and goes where nothing is left."""
    told: list[Any] = []
    for one in messages:
        content = one.get("content") or ""
        if one["role"] == "system":
            told += [("system", content.strip())] if content.strip() else []
            continue
        calls = [
            (function["name"], json.loads(found) if isinstance(found, str) else found)
            for function in (call["function"] for call in one.get("tool_calls") or ())
            for found in [function["arguments"]]
        ]
        told.append((one["role"], content, calls))
    return told


@pytest.mark.parametrize("layout", [to_openai, to_hermes])
@settings(max_examples=150, deadline=None)
@given(both=exported())
def test_a_round_trip(layout: Any, both: tuple[list[Any], list[Any]]) -> None:
    messages, tools = both
    try:
        row = json.loads(json.dumps(layout(messages, tools)))
    except NotExportable:
        return
    found = conversation(row, 1)
    assert plain(found.messages) == plain(messages)
    assert (found.tools or ()) == tools_in(tools)
