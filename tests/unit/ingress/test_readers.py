"""Readers of tool calls: what they read, in whatever pieces it comes, and what stays text."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingress.readers.registry import READERS, ReaderName, calls_required, make_reader
from ingress.types import IllFormed, Piece, ReadCall, Words

pytestmark = pytest.mark.quick

TOOLS = (
    {
        "type": "function",
        "function": {
            "name": "add",
            "parameters": {
                "type": "object",
                "properties": {
                    "a": {"type": "integer"},
                    "b": {"type": "string"},
                    "flag": {"type": "boolean"},
                    "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
                    "words": {"type": ["string", "null"]},
                },
            },
        },
    },
)
HERMES = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": "x"}}\n</tool_call>'
XML = (
    "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\nx\n</parameter>\n"
    "</function>\n</tool_call>"
)
LLAMA = '{"name": "add", "parameters": {"a": 1, "b": "x"}}'
ADD = ReadCall(name="add", arguments='{"a": 1, "b": "x"}')


def read(name: ReaderName, *texts: str) -> list[Piece]:
    """All pieces, neighbouring words joined."""
    reader = make_reader(name, TOOLS)
    found: list[Piece] = []
    for piece in [*(one for text in texts for one in reader.feed(text)), *reader.end()]:
        last = found[-1] if found else None
        if isinstance(piece, Words) and isinstance(last, Words):
            found[-1] = Words(text=last.text + piece.text)
        else:
            found.append(piece)
    return found


CASES: list[tuple[ReaderName, str, list[Piece]]] = [
    ("hermes", "just words <tool", [Words(text="just words <tool")]),
    ("hermes", f"I add.\n{HERMES}", [Words(text="I add."), ADD]),
    ("hermes", f"{HERMES}\n{HERMES}\n", [ADD, ADD]),
    ("hermes", f"{HERMES} and more", [ADD, Words(text=" and more")]),
    (
        "hermes",
        '<tool_call>{"name": "add", "arguments": {"b": "</tool_call>"}}</tool_call>',
        [ReadCall(name="add", arguments='{"b": "</tool_call>"}')],
    ),
    ("qwen3_xml", f"I add.\n\n{XML}", [Words(text="I add."), ADD]),
    (
        "qwen3_xml",
        "<tool_call><function=now></function></tool_call>",
        [ReadCall(name="now", arguments="{}")],
    ),
    (
        "qwen3_xml",
        "<tool_call><function=add><parameter=b>\n\n<b> \n</parameter></function></tool_call>",
        [ReadCall(name="add", arguments=json.dumps({"b": "\n<b> "}))],
    ),
    *(
        (
            "qwen3_xml",
            f"<tool_call><function=add><parameter={key}>{text}</parameter></function></tool_call>",
            [ReadCall(name="add", arguments=json.dumps({key: value}))],
        )
        for key, text, value in (
            ("flag", "True", True),
            ("flag", "false", False),
            ("maybe", "7", 7),
            ("maybe", "None", None),
            ("words", "null", None),
            ("words", "True", "True"),
            ("b", "None", "None"),
        )
    ),
    ("llama_json", "just {words}", [Words(text="just {words}")]),
    ("llama_json", LLAMA, [ADD]),
    ("llama_json", f"<|python_tag|>{LLAMA}; {LLAMA}", [ADD, ADD]),
    ("llama_json", '{"a": 1}', [Words(text='{"a": 1}')]),
]


@pytest.mark.parametrize(("name", "text", "pieces"), CASES)
def test_what_is_read(name: ReaderName, text: str, pieces: list[Piece]) -> None:
    assert read(name, text) == pieces
    assert read(name, *text) == pieces, "letter by letter"


ILL_FORMED: list[tuple[ReaderName, str, str]] = [
    ("hermes", '<tool_call>{"name": "add", "arguments": {}</tool_call>', "not JSON"),
    ("hermes", '<tool_call>{"name": "add", "argumens": {}}</tool_call>', "argumens"),
    ("hermes", '<tool_call>{"name": "add", "arguments": {}}', "ends inside"),
    ("hermes", "<tool_call></tool_call>", "not JSON"),
    ("qwen3_xml", "<tool_call>add(1)</tool_call>", "a tool call is <function="),
    ("qwen3_xml", "<tool_call><function=add></tool_call>", "a tool call is <function="),
    (
        "qwen3_xml",
        "<tool_call><function=add><parameter=a>one</parameter></function></tool_call>",
        "not integer",
    ),
    ("qwen3_xml", "<tool_call><function=add>1</function></tool_call>", "text outside"),
    ("qwen3_xml", "<tool_call><function=add>", "ends inside"),
    ("llama_json", '{"name": "add", "parameters": {"a": 1}', "not JSON"),
    ("llama_json", '{"name": "add", "parameters": "a"}', "not a JSON object"),
    ("llama_json", LLAMA + " done", "text after a call"),
    ("llama_json", '<|python_tag|>__import__("os").getcwd()', "not JSON"),
]


@pytest.mark.parametrize(("name", "text", "reason"), ILL_FORMED)
def test_an_ill_formed_call_comes_back_as_text_with_a_note(
    name: ReaderName, text: str, reason: str
) -> None:
    (piece,) = read(name, text)
    assert isinstance(piece, IllFormed)
    assert piece.text == text
    assert reason in piece.reason
    assert read(name, *text) == [piece]


PARTS = st.sampled_from(
    ["<tool_call>", "</tool_call>", HERMES, XML, LLAMA, "{", '"', "}", "\n", " ", "x", "<", ";"]
)


@given(st.sampled_from(READERS), st.lists(PARTS, max_size=8), st.data())
def test_the_pieces_in_which_a_text_comes_change_nothing(
    name: ReaderName, parts: list[str], data: st.DataObject
) -> None:
    text = "".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=4)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert read(name, *pieces) == read(name, text)


def test_without_tools_a_text_is_text() -> None:
    assert make_reader("hermes", ()).feed(HERMES) == [Words(text=HERMES)]


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("part", ["<tool_call></tool_call>", "<tool_call>", '{"', "{}; ", "<"])
def test_half_a_megabyte_is_read_in_linear_time(name: ReaderName, part: str) -> None:
    def seconds(size: int) -> float:
        text = part * (size // len(part))
        began = time.process_time()
        read(name, text)
        return time.process_time() - began

    seconds(1 << 10)
    assert seconds(1 << 19) < 16 * max(seconds(1 << 16), 0.05)


@pytest.mark.parametrize("name", READERS)
def test_a_required_call_has_a_grammar_that_names_the_tool(name: ReaderName) -> None:
    constraint = calls_required(name, TOOLS)
    assert constraint.kind == ("json_schema" if name == "llama_json" else "structural_tag")
    assert json.loads(constraint.text)
    assert "add" in constraint.text
