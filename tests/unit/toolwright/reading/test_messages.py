"""Chat messages of rows in one form, and nulls of tables that are left out."""

from __future__ import annotations

from typing import Any

import pytest

from toolwright.reading.task_rows.messages import read_messages
from toolwright.reading.task_rows.nulls import arguments_without_nulls, schema_without_nulls
from toolwright.reading.task_rows.refusal import RowRefused

pytestmark = pytest.mark.quick

USER = {"role": "user", "content": "q"}
CALL = {"type": "function", "function": {"name": "python", "arguments": {"code": "1"}}}


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ({"role": "user", "content": "q", "tool_calls": None, "name": None}, USER),
        ({"role": "user", "content": [{"type": "text", "text": "q"}]}, USER),
        ({"role": "user", "content": ["q"], "tool_calls": []}, USER),
        ({"role": "user", "content": [{"text": "q", "image": None}]}, USER),
        ({"role": "developer", "content": "s"}, {"role": "system", "content": "s"}),
        ({"role": "tool", "content": None}, {"role": "tool", "content": ""}),
        (
            {"role": "user", "content": [{"type": "image", "text": None}, "q"]},
            {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "q"}]},
        ),
        (
            {"role": "assistant", "content": None, "tool_calls": [{"id": "1", **CALL}]},
            {"role": "assistant", "content": "", "tool_calls": [{"id": "1", **CALL}]},
        ),
        (
            {
                "role": "assistant",
                "tool_calls": [{"function": {"name": "python", "arguments": '{"code": "1"}'}}],
            },
            {"role": "assistant", "content": "", "tool_calls": [CALL]},
        ),
        (
            {"role": "assistant", "function_call": {"name": "python", "arguments": {"code": "1"}}},
            {"role": "assistant", "content": "", "tool_calls": [CALL]},
        ),
        (
            {"role": "assistant", "content": "a", "function_call": {"name": None}},
            {"role": "assistant", "content": "a"},
        ),
    ],
)
def test_a_message_of_a_table(given: dict[str, Any], read: dict[str, Any]) -> None:
    assert read_messages([USER, given]) == (USER, read)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"role": "user", "content": None}, "message 2 of 'user' has no text"),
        ({"role": "assistant"}, "message 2 of 'assistant' has no text"),
        ({"role": "user", "content": 5}, "content that is a int"),
        ({"role": "user", "content": {"text": "q"}}, "content that is a dict"),
        ({"role": "user", "content": [5]}, "a part of content"),
        ({"content": "x"}, "message 2 has no role"),
        ({"role": 3, "content": "x"}, "message 2 has no role"),
        ({**USER, "tool_calls": [CALL]}, "only the assistant does"),
        ({"role": "assistant", "tool_calls": "x"}, "not a list"),
        ({"role": "assistant", "tool_calls": [{"function": {"name": ""}}]}, "names no function"),
        (
            {"role": "assistant", "tool_calls": [{"function": {"name": "a", "arguments": "{"}}]},
            "JS",
        ),
        (
            {"role": "assistant", "tool_calls": [{"function": {"name": "a", "parameters": {}}}]},
            'message 2: the call of .a. has "parameters" in place of "arguments"',
        ),
        ("text", "message 2 is a str"),
    ],
)
def test_a_message_that_cannot_be_read_is_named(given: Any, says: str) -> None:
    with pytest.raises(RowRefused, match=says) as caught:
        read_messages([USER, given])
    assert caught.value.kind == "messages"


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "code": {"type": "string"},
        "unit": {"type": "string"},
        "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "any": {},
        "where": {"type": "object", "properties": {"city": {"type": "string"}}},
        "free": {"type": "object"},
        "list": {"type": "array", "items": {"type": "object", "properties": {"a": {}}}},
    },
    "required": ["code"],
}


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ({"code": "1", "query": None}, {"code": "1"}),
        ({"code": None}, {"code": None}),  # a call that the tool refuses is recorded as it was
        ({"code": "1", "unit": None}, {"code": "1"}),
        ({"code": "1", "limit": None}, {"code": "1", "limit": None}),
        ({"code": "1", "any": None}, {"code": "1", "any": None}),
        ({"where": {"city": "x", "zip": None}}, {"where": {"city": "x"}}),
        ({"free": {"x": None}}, {"free": {"x": None}}),
        ({"list": [{"a": 1, "b": None}]}, {"list": [{"a": 1}]}),
        ({"query": "of another tool"}, {"query": "of another tool"}),
    ],
)
def test_arguments_that_a_table_filled_in(given: dict[str, Any], left: dict[str, Any]) -> None:
    assert arguments_without_nulls(given, SCHEMA) == left


def test_arguments_written_as_text_are_as_the_policy_wrote_them() -> None:
    def read(arguments: Any, schema: Any = SCHEMA) -> Any:
        calls = [{"function": {"name": "python", "arguments": arguments}}]
        (message,) = read_messages([{"role": "assistant", "tool_calls": calls}], {"python": schema})
        return message["tool_calls"][0]["function"]["arguments"]

    assert read('{"code": "1", "query": null}') == {"code": "1", "query": None}
    assert read({"code": "1", "query": None}) == {"code": "1"}
    assert read({"query": None}, {}) == {}


def test_schemas_that_a_table_filled_in() -> None:
    filled = {
        "type": "object",
        "properties": {
            "code": {"type": "string", "enum": None, "items": None, "default": None},
            "query": None,
            "limit": {"type": ["integer", "null"], "default": None},
            "kind": {"enum": ["a", None]},
        },
        "required": ["code"],
        "additionalProperties": None,
    }
    assert schema_without_nulls(filled) == {
        "type": "object",
        "properties": {
            "code": {"type": "string"},
            "limit": {"type": ["integer", "null"], "default": None},
            "kind": {"enum": ["a", None]},
        },
        "required": ["code"],
    }
    written = {"properties": {"unit": {"type": "string", "default": None}}}
    assert schema_without_nulls(written) == written, "as its author has it"
    assert schema_without_nulls({**written, "items": None}) == {
        "properties": {"unit": {"type": "string"}}
    }
