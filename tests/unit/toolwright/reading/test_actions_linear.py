"""Hostile actions are read in linear time."""

import pytest

from tests.support.linear import assert_linear
from toolwright.reading.action_ends import Grammar, Tags, counted, spoken
from toolwright.reading.actions import calls_in, last_call, last_span, python_blocks
from toolwright.reading.json_text.json_prefix import JsonPrefix

pytestmark = [pytest.mark.quick, pytest.mark.alone]

CALL = Tags("<tool_call>", "</tool_call>")
GRAMMAR = Grammar(ends=(CALL.close,), json=(CALL,), thought=Tags("<think>", "</think>"))

HOSTILE = [
    "<tool_call>", "</tool_call>", '<tool_call>{"', '<tool_call>{"a": "</tool_call>', "<think>",
    '</tool_call><tool_call>{["," ', "<think></think>", '<tool_call>{"a": 9', "\\", '{"a":[',
    '```python\n\\"""\n```\n', "```python\n'''\n```\n", "```\n", "```python\n", "~`", "'", '"""',
]  # fmt: skip


@pytest.mark.parametrize(
    "read",
    [
        lambda text: calls_in(text, CALL, 256),
        lambda text: last_call(text, CALL),
        lambda text: last_span(text, *CALL),
        lambda text: counted(text, GRAMMAR),
        lambda text: spoken(text, GRAMMAR, thinking=True),
        lambda text: list(python_blocks(text)),
        lambda text: JsonPrefix().feed('{"' + text),
    ],
    ids=["calls", "last-call", "last-block", "counted", "spoken", "python", "json"],
)
def test_a_megabyte_of_tags_is_read_in_linear_time(read: object) -> None:
    assert_linear(read, texts=HOSTILE)  # type: ignore[arg-type]
