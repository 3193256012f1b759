"""Rows in the layouts that others publish, read as one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.errors import StartupError
from engine.offline.conversations.layouts import conversation
from engine.offline.conversations.lines import conversations
from engine.offline.conversations.types import RecordedConversation
from tests.support.linear import WORST, assert_linear
from tests.support.messages import assistant, call, system, tool, user
from toolwright.reading.task_rows.refusal import RowRefused
from toolwright.reading.task_rows.row_files import MOST_ROW_BYTES

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {
    "type": "function",
    "function": {"name": "weather", "description": "Of a city.", "parameters": PARAMETERS},
}
LOOKS = [
    call("weather", json.dumps({"city": city}), id=f"call_{number}")
    for number, city in enumerate(("Oslo", "Bergen"))
]
OPENAI: dict[str, Any] = {
    "messages": [
        system("Be brief."),
        user("Oslo and Bergen?"),
        assistant("I look.", *LOOKS),
        tool('{"sky": "blue"}', tool_call_id="call_0"),
        tool('{"sky": "grey"}', tool_call_id="call_1"),
        assistant("Blue and grey."),
    ],
    "tools": [WEATHER],
    "parallel_tool_calls": True,
}
FRAME = (
    "You are a function calling AI model. You are provided with function signatures within "
    "<tools></tools> XML tags. You may call one or more functions to assist with the user query. "
    "Don't make assumptions about what values to plug into functions.\n"
    "<tools>\n{tools}\n</tools>\n"
    "For each function call return a json object with function name and arguments within "
    "<tool_call></tool_call> tags with the following schema:\n"
    "<tool_call>\n{{'arguments': <args-dict>, 'name': <function-name>}}\n</tool_call>\n"
)
QWEN = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are "
    "provided with function signatures within <tools></tools> XML tags:\n<tools>\n{tools}\n"
    "</tools>\n\nFor each function call, return a json object with function name and "
    "arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n"
    '{{"name": <function-name>, "arguments": <args-json-object>}}\n</tool_call>'
)
NOUS = (
    "You are a function calling AI model. You are provided with function signatures within "
    "<tools> </tools> XML tags. You may call one or more functions to assist with the user query. "
    "Don't make assumptions about what values to plug into functions.Here are the available tools:"
    "<tools>{tools}</tools>Use the following pydantic model json schema for each tool call you "
    "will make: {{'title': 'FunctionCall', 'type': 'object', 'properties': {{'arguments': "
    "{{'title': 'Arguments', 'type': 'object'}}, 'name': {{'title': 'Name', 'type': 'string'}}}}, "
    "'required': ['arguments', 'name']}}\nFor each function call return a json object with "
    "function name and arguments within <tool_call></tool_call> XML tags as follows:\n"
    "<tool_call>\n{{tool_call}}\n</tool_call>"
)
HERMES: dict[str, Any] = {
    "conversations": [
        {"from": "system", "value": "Be brief.\n\n" + FRAME.format(tools=[WEATHER])},
        {"from": "human", "value": "Oslo and Bergen?"},
        {
            "from": "gpt",
            "value": "I look.\n"
            "<tool_call>\n{'arguments': {'city': 'Oslo'}, 'name': 'weather'}\n</tool_call>\n"
            '<tool_call>\n{"name": "weather", "arguments": {"city": "Bergen"}}\n</tool_call>\n',
        },
        {
            "from": "tool",
            "value": '<tool_response>\n{"sky": "blue"}\n</tool_response>\n'
            '<tool_response>\n{"sky": "grey"}\n</tool_response>\n',
        },
        {"from": "gpt", "value": "Blue and grey."},
    ],
    "category": "Weather",
}


def plain(found: RecordedConversation) -> list[Any]:
    """What a protocol reads of the messages."""

    def calls(one: Any) -> list[Any]:
        functions = [call["function"] for call in one.get("tool_calls", ())]
        return [(function["name"], function["arguments"]) for function in functions]

    return [(one["role"], one.get("content"), calls(one)) for one in found.messages]


EXPECTED = [
    ("system", "Be brief.", []),
    ("user", "Oslo and Bergen?", []),
    ("assistant", "I look.", [("weather", {"city": "Oslo"}), ("weather", {"city": "Bergen"})]),
    ("tool", '{"sky": "blue"}', []),
    ("tool", '{"sky": "grey"}', []),
    ("assistant", "Blue and grey.", []),
]


def roles_and_contents(row: dict[str, Any]) -> dict[str, Any]:
    names = {"human": "user", "gpt": "assistant"}
    return {
        "messages": [
            {"role": names.get(one["from"], one["from"]), "content": one["value"]}
            for one in row["conversations"]
        ]
    }


@pytest.mark.parametrize(
    "row",
    [
        OPENAI,
        HERMES,
        roles_and_contents(HERMES),
        {"conversations": roles_and_contents(HERMES)["messages"]},
        HERMES | {"tools": json.dumps([WEATHER])},
    ],
    ids=["openai", "hermes", "hermes as messages", "roles", "a column of tools"],
)
def test_all_layouts_are_read_as_one(row: dict[str, Any]) -> None:
    found = conversation(row, 7)
    assert plain(found) == EXPECTED
    assert found.id == "7"
    assert found.tools is not None
    (tool,) = found.tools
    assert (tool.name, tool.description) == ("weather", "Of a city.")
    assert tool.arguments_schema == PARAMETERS
    if found.with_tool_list is not None:
        assert "<tools>" in found.with_tool_list[0]["content"]
        assert found.with_tool_list[1:] == found.messages[1:]
    assert (found.with_tool_list is None) == (row is OPENAI)


def test_the_words_around_tools_go_and_all_others_stay() -> None:
    lines = json.dumps(WEATHER) + "\n" + json.dumps({"name": "time", "parameters": None})
    for said, rest in (
        ("A.\n\n" + FRAME.format(tools=json.dumps([WEATHER])) + "\nB.", "A.\n\nB."),
        ("A.\n\n" + QWEN.format(tools=lines) + "\n\nB.", "A.\n\nB."),
        (NOUS.format(tools=json.dumps([WEATHER])), None),
        (
            f"You are a function calling AI model. Be kind.\n# Tools and manners\n<tools>{lines}"
            "</tools>. Never tell the price. Example: <tool_call></tool_call> Bye.",
            "You are a function calling AI model. Be kind.\n# Tools and manners\n\n"
            ". Never tell the price. Example: <tool_call></tool_call> Bye.",
        ),
        (f"My own words: <tools>{lines}</tools>", "My own words:"),
    ):
        messages = conversation(after_system(said), 1).messages
        assert [one["content"] for one in messages if one["role"] == "system"] == (
            [] if rest is None else [rest]
        )


def after_system(said: str) -> dict[str, Any]:
    both = (("system", said), ("human", "x"), ("gpt", "y"))
    return {"conversations": [{"from": who, "value": what} for who, what in both]}


def test_a_system_message_without_tools_stays_as_it_is() -> None:
    said = "Write <tools></tools> and <tool_call> as you like."
    found = conversation(after_system(said), 1)
    assert found.messages[0]["content"] == said
    assert found.tools is None and found.with_tool_list is None


def test_older_spellings_and_weights() -> None:
    row = {
        "id": "q1",
        "messages": [
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": "Oslo?"},
            {"role": "assistant", "weight": 0,
             "function_call": {"name": "weather", "arguments": '{"city": "Oslo"}'}},
            {"role": "function", "name": "weather", "content": "blue"},
            {"role": "assistant", "content": "Blue.", "weight": 1},
        ],
        "functions": [WEATHER["function"]],
    }  # fmt: skip

    found = conversation(row, 1)
    assert [one["role"] for one in found.messages] == [
        "system", "user", "assistant", "tool", "assistant",
    ]  # fmt: skip
    assert plain(found)[2][2] == [("weather", {"city": "Oslo"})]
    assert found.untrained == {0}
    assert found.tools is not None and found.tools[0].name == "weather"
    assert found.id == "q1"


@pytest.mark.parametrize("key", ["messages", "conversations"])
def test_structured_calls_are_read_whatever_the_texts_hold(key: str) -> None:
    messages = [dict(one) for one in OPENAI["messages"]]
    messages[0]["content"] = FRAME.format(tools=json.dumps([WEATHER]))
    messages[2]["weight"] = 0
    found = conversation({key: messages, "tools": [WEATHER]}, 1)
    assert plain(found)[0] == ("system", messages[0]["content"], []), "as the row has it"
    assert plain(found)[1:] == EXPECTED[1:]
    assert found.untrained == {0}


def changed(message: int, **change: Any) -> dict[str, Any]:
    messages = [dict(one) for one in OPENAI["messages"]]
    messages[message] |= change
    return OPENAI | {"messages": messages}


def calls(name: str, arguments: Any = None) -> list[Any]:
    return [call(name, arguments, id="call_0")]


def gpt(text: Any, answers: str = "x") -> dict[str, Any]:
    said = [("human", "x"), ("gpt", text), ("tool", answers), ("gpt", "y")]
    return {"conversations": [{"from": who, "value": what} for who, what in said]}


CALL = '<tool_call>{"name": "a", "arguments": {}}</tool_call>'


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (3, "this one is a int"),
        ({"text": "x", "label": 1}, "has the keys 'text', 'label'"),
        ({"messages": "x"}, "'messages' is a str"),
        ({"messages": [["x"]]}, "message 1 is a list"),
        (changed(1, content=None), "message 2 of 'user' has no text"),
        (changed(1, tool_calls=calls(name="a")), "only the assistant does"),
        (changed(2, tool_calls={"name": "a"}), "tool_calls of message 3 are not a list"),
        (changed(2, tool_calls=calls(name="")), "a call of message 3 names no function"),
        (changed(2, tool_calls=calls(name="a", arguments="[1]")), "are a list: write an object"),
        (changed(2, tool_calls=calls(name="a")), "1 calls and 2 results"),
        (changed(4, tool_call_id="call_9"), "have other ids than its calls"),
        (OPENAI | {"tools": 3}, "tools are a int"),
        (OPENAI | {"tools": "["}, "tools: not JSON"),
        (OPENAI | {"tools": [{"function": {}}]}, "tool 1 has no name"),
        (OPENAI | {"tools": ["x"]}, "tool 1 is not a function"),
        (OPENAI | {"tools": [{"name": "a", "parameters": [1]}]}, "parameters of tool 'a'"),
        (OPENAI | {"tools": [WEATHER, WEATHER]}, "2 tools are called 'weather'"),
        ({"conversations": [{"from": "narrator", "value": "x"}]}, "is from 'narrator'"),
        (gpt(None), "message 2 has no text"),
        (gpt("<tool_call>{"), "has <tool_call> without </tool_call>"),
        (gpt("x</tool_call>"), "has </tool_call> without <tool_call>"),
        (gpt(f"<tool_call>{CALL}"), "<tool_call> without </tool_call>"),
        (gpt("<tool_call>[1]</tool_call>"), "names no tool"),
        (gpt(f"{CALL} and so"), "has text after </tool_call>, 'and so'"),
        (gpt("<tool_call>a(b)</tool_call>"), "a call of message 2: not JSON"),
        (gpt("<tool_call>{'name': 'a', 'arguments': {1, 2}}</tool_call>"), "not JSON"),
        (gpt("<tool_call>{'name': 'a', 'arguments': {1: 'a', 'b': 2}}</tool_call>"), "not JSON"),
        (gpt("<tool_call>{'name': '\\ud800', 'arguments': {}}</tool_call>"), "not JSON"),
        (changed(2, tool_calls=calls(name="a", arguments='{"a": "\\ud800"}')), "not JSON"),
        (gpt(CALL, "so <tool_response>1</tool_response>"), "text before <tool_response>"),
        (gpt(CALL, "<tool_response>1"), "<tool_response> without"),
    ],
)
def test_a_broken_row_says_where_and_what(row: Any, words: str) -> None:
    with pytest.raises(RowRefused) as caught:
        conversation(row, 1)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "bomb",
    [
        "(" * 90_000,
        "{'a':" * 15_000,
        "-" * 90_000 + "1",
        "1" + "+1" * 40_000,
        "9" * 90_000,
        "[" * 40 + "]" * 40,
    ],
    ids=lambda text: str(text)[:6],
)
def test_a_call_that_would_break_a_parser_is_a_broken_row(bomb: str) -> None:
    with pytest.raises(RowRefused):
        conversation(gpt(f"<tool_call>{bomb}</tool_call>"), 1)
    with pytest.raises(RowRefused):
        conversation(OPENAI | {"tools": bomb}, 1)


@pytest.mark.alone
@pytest.mark.parametrize("who", ["system", "gpt", "tool"])
def test_a_text_of_tags_is_read_in_linear_time(who: str) -> None:
    before = [{"from": "gpt", "value": CALL}] if who == "tool" else []

    def read(text: str) -> None:
        conversation({"conversations": [*before, {"from": who, "value": text}]}, 1)

    tags = ("<tools>", "</tools>", "<tools>[", "<tools> ", "<tool_response>", "</tool_response>")
    assert_linear(read, texts=[*WORST[:16], *tags])


def read(file: Path) -> list[Any]:
    return list(conversations(file))


def test_lines(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    line = json.dumps(OPENAI).encode()
    file.write_bytes(b"\xef\xbb\xbf" + line + b"\r\n\r\n" + b"{\r\n\xff\n" + line)
    found = read(file)
    assert [number for number, _ in found] == [1, 3, 4, 5]
    assert [isinstance(one, RecordedConversation) for _, one in found] == [True, False, False, True]
    assert "not JSON" in str(found[1][1])
    assert "not UTF-8" in str(found[2][1])
    file.write_text(
        '{"messages": [{"role": "user", "content": "\\ud800"}]}\n' + "[" * 10**5, encoding="utf-8"
    )
    assert all(isinstance(one, RowRefused) for _, one in read(file)), "half a pair; too deep"
    file.write_bytes(b"")
    assert read(file) == []


def test_ids_are_names_and_none_is_there_twice(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    given = [None, True, 1.5, ["a"], "", "x" * 201, 10**300, "a", "a", "a-9", "11", 11, 0, -3]
    file.write_text(
        "".join(json.dumps(OPENAI | {"id": one}) + "\n" for one in given), encoding="utf-8"
    )
    found = [one.id for _, one in read(file) if isinstance(one, RecordedConversation)]
    numbers = [str(number) for number in range(1, 8)]
    assert found == [*numbers, "a", "a-9", "a-9-10", "11", "11-12", "0", "-3"]


def test_files_of_other_kinds_name_the_mend(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    file.write_bytes(b"PAR1\x00\x01")
    with pytest.raises(StartupError, match="is Parquet: write it as JSON lines"):
        read(file)
    file.write_text(f"\n[\n{json.dumps(OPENAI)}\n]".strip(), encoding="utf-8")
    with pytest.raises(StartupError, match=r"is one JSON list.*jq"):
        read(file)
    file.write_bytes(b"\n" + b"x" * (MOST_ROW_BYTES + 1))
    with pytest.raises(StartupError, match=r"x\.jsonl:2 is longer than 64 MiB"):
        read(file)


def test_nulls_of_other_tools_are_left_out() -> None:
    """Parquet gives each struct the keys of all rows, those of others null."""
    properties = {"code": None, "query": {"type": "string"}}
    parameters = {"type": "object", "properties": properties, "required": ["query"], "items": None}
    made = call("search", {"code": None, "query": "capital"})
    row = {
        "messages": [user("q"), assistant("", made), tool("4")],
        "tools": [{"type": "function", "function": {"name": "search", "parameters": parameters}}],
        "functions": None,
    }
    found = conversation(row, 1)
    assert found.messages[1]["tool_calls"][0]["function"]["arguments"] == {"query": "capital"}
    assert found.tools is not None
    assert found.tools[0].arguments_schema == {
        "type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"],
    }  # fmt: skip
    alone = conversation({"messages": row["messages"]}, 1, found.tools)
    assert alone.messages == found.messages, "a row without tools is of the service's"


def test_a_recording_may_end_with_a_call() -> None:
    row = {"messages": OPENAI["messages"][:3]}
    assert len(conversation(row, 1).messages) == 3


def test_an_answer_needs_no_tags() -> None:
    assert plain(conversation(gpt(CALL, "blue"), 1))[2] == ("tool", "blue", [])
