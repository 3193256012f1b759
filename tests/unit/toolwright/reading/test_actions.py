"""What an action asks for, read by the one parser that the engine and the tool host share."""

import json
import random

import pytest

from engine.core.protocols.actions import read_call, read_json_call
from engine.core.protocols.chat import Chat
from engine.types import ToolSpec
from tests.support.codecs import END, ToyCodec
from tests.support.views import view_of
from toolsvc.plugin.actions import InvalidAction, find_tool, parse_arguments
from toolsvc.plugin.tool import Tool
from toolsvc.tools.python import fenced_code
from toolsvc.types import JsonCallFormat, TagFormat
from toolwright.reading.action_ends import Grammar, Tags, spoken
from toolwright.reading.actions import calls_in, python_blocks
from toolwright.reading.json_text.json_prefix import JsonPrefix

pytestmark = pytest.mark.quick

CALL = Tags("<tool_call>", "</tool_call>")
PYTHON = ToolSpec(
    name="python", stop_strings=("</python>",), open_tag="<python>", close_tag="</python>",
    argument="code",
)  # fmt: skip
NOTE = ToolSpec(
    name="note", stop_strings=(CALL.close,), open_tag=CALL.open, close_tag=CALL.close,
    json_call=True,
)  # fmt: skip
CODEC = ToyCodec()


class Python(Tool):
    name = "python"
    format = TagFormat(open="<python>", close="</python>", argument="code")


class Note(Tool):
    name = "note"
    format = JsonCallFormat()


HOST = {"python": Python().describe(), "note": Note().describe()}


def note(**arguments: object) -> str:
    return f"<tool_call>{json.dumps({'name': 'note', 'arguments': arguments})}</tool_call>"


@pytest.mark.parametrize(
    ("action", "stop", "arguments"),
    [
        # The opening tag inside an argument.
        (
            '<python>print("write <python> before code")</python>',
            "</python>",
            {"code": 'print("write <python> before code")'},
        ),
        ("<python>a = '<python>'\nb = '<python>'</python>", "</python>",
         {"code": "a = '<python>'\nb = '<python>'"}),
        (note(code="print('<tool_call>')"), CALL.close, {"code": "print('<tool_call>')"}),
        (note(a="<tool_call>{", b="<tool_call>"), CALL.close,
         {"a": "<tool_call>{", "b": "<tool_call>"}),
        # A closing tag inside a string.
        (note(text="see </tool_call> there", tag="x"), CALL.close,
         {"text": "see </tool_call> there", "tag": "x"}),
        (note(text='"}}</tool_call>'), CALL.close, {"text": '"}}</tool_call>'}),
        (note(text=["</tool_call>", "</tool_call>"]), CALL.close,
         {"text": ["</tool_call>", "</tool_call>"]}),
        (note(text="close with </python>"), CALL.close, {"text": "close with </python>"}),
        # The tag is mentioned before the call.
        ("A <tool_call> comes: " + note(text="</tool_call>"), CALL.close, {"text": "</tool_call>"}),
        ('<tool_call>{"name": "no' + note(text="again"), CALL.close, {"text": "again"}),
    ],
)  # fmt: skip
def test_engine_and_host_read_the_same(action: str, stop: str, arguments: dict[str, str]) -> None:
    call = read_call(action, stop, (PYTHON, NOTE))
    assert (call.arguments, call.invalid_reason) == (arguments, "")
    name = find_tool(action, HOST.values())
    assert name == call.tool
    assert parse_arguments(action, HOST[name]) == arguments


PIECES = [
    "<tool_call>", "</tool_call>", "<python>", "</python>", '{"name": "note", "arguments": {',
    '"text": "', '"', "}", "}}", ", ", "\\", "\n", "x", "{", "[", "]", note(text="</tool_call>"),
]  # fmt: skip


def test_engine_and_host_read_the_same_whatever_is_written() -> None:
    chance = random.Random(7)
    read = 0
    for _ in range(10_000):
        words = chance.choices(PIECES, k=chance.randint(0, 8))
        ends = chance.choice([CALL.close, note(a=1), '"}}' + CALL.close])
        action = "".join(words) + ends
        call = read_json_call(action, *CALL)
        try:
            found = parse_arguments(action, HOST["note"])
        except InvalidAction as error:
            assert call.invalid_reason or call.tool != "note", error
        else:
            assert (call.tool, call.arguments) == ("note", found)
            read += 1
    assert read > 1000


def test_a_closing_tag_in_a_string_is_one_call_of_a_parallel_action() -> None:
    action = '<tool_call>\n{"name": "note", "arguments": {"text": "see </tool_call> there"}}\n'
    action += "</tool_call>"
    decision = Chat(parallel=True).decide(action + END, END, view_of((NOTE,)), CODEC)
    (call,) = decision.calls
    assert call.arguments == {"text": "see </tool_call> there"}
    two = Chat(parallel=True).decide(f"{action}\n{note(b=2)}{END}", END, view_of((NOTE,)), CODEC)
    assert [call.arguments for call in two.calls] == [{"text": "see </tool_call> there"}, {"b": 2}]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ('{"name": "pick", "parameters": {"n": 7}}', '"parameters" in place of "arguments"'),
        ('{"type": "function", "name": "pick", "parameters": {}}', '"parameters" in place of'),
        ('{"name": "pick", "args": {"n": 7}}', '"args" in place of "arguments"'),
        ('{"name": "pick", "input": {"n": 7}}', '"input" in place of "arguments"'),
        ('{"name": "pick", "n": 7}', '"n" in place of "arguments"'),
        ('{"name": "pick", "arguments": "{}"}', '"arguments" is not a JSON object'),
        ('{"name": "pick", "arguments": null}', '"arguments" is not a JSON object'),
        ('{"function": "pick", "arguments": {}}', 'needs {"name", "arguments"}'),
    ],
)
def test_a_call_that_would_run_with_the_tools_defaults_is_refused(body: str, says: str) -> None:
    action = f"<tool_call>\n{body}\n</tool_call>"
    assert says in read_json_call(action, *CALL).invalid_reason
    with pytest.raises(InvalidAction) as error:
        parse_arguments(action, HOST["note"])
    assert says in str(error.value)


@pytest.mark.parametrize("more", ["", ', "id": "call_1"', ', "type": "function"'])
def test_a_call_without_arguments_is_a_call(more: str) -> None:
    call = read_json_call(f'<tool_call>{{"name": "now"{more}}}</tool_call>', *CALL)
    assert (call.tool, call.arguments, call.invalid_reason) == ("now", {}, "")


@pytest.mark.parametrize(
    ("action", "faults"),
    [
        # A quotation mark is missing: the first call ends at its own tag, and spoils no other.
        ('<tool_call>{"name": "a", "arguments": "x}}</tool_call>\n' + note(b=1), [True, False]),
        ('<tool_call>{"name": "a", "arguments": "x}}</tool_call>' + note(b=1), [True, False]),
        ('<tool_call>{"name": "a", "arguments": "x}}</tool_call>', [True]),
        ('<tool_call>{"name": "a", "arguments": {"q": "pr("x")"}}</tool_call>', [True]),
        ("</tool_call>" + note(b=1), [True, False]),
    ],
)  # fmt: skip
def test_broken_json_ends_at_the_first_closing_tag(action: str, faults: list[bool]) -> None:
    assert [bool(one.call.fault) for one in calls_in(action, CALL)] == faults


GRAMMAR = Grammar(
    ends=(CALL.close, END), json=(CALL,), thought=Tags("<think>", "</think>"), turn_end=END
)


@pytest.mark.parametrize(
    ("text", "thinking", "said"),
    [
        (f"<think>A draft: {note(n=1)} no.</think>\n{note(n=2)}", False, f"\n{note(n=2)}"),
        (f"A draft: {note(n=1)} no.</think>{note(n=2)}", True, note(n=2)),
        (f"A draft: {note(n=1)} no.{END}", True, END),
        (f"<think>{note(n=1)}{END}", False, END),
        (note(text="write <think> first"), False, note(text="write <think> first")),
        (f"<think>a</think>{note(n=1)}<think>{note(n=2)}</think>{note(n=3)}", False,
         note(n=1) + note(n=3)),
        (f"{note(n=1)}</think>{END}", False, f"{note(n=1)}</think>{END}"),
    ],
)  # fmt: skip
def test_a_thought_of_the_template_is_not_read(text: str, thinking: bool, said: str) -> None:
    assert spoken(text, GRAMMAR, thinking=thinking) == said


@pytest.mark.parametrize(
    ("action", "code"),
    [
        ("```python3\nx = 1\n```", "x = 1"),
        ("```Python\nx = 1\n```", "x = 1"),
        ("```py3\nx = 1\n```\n```python3.11\ny = 2\n```", "x = 1\ny = 2"),
        ('```python\ntext = """\n```\nls\n```\n"""\nprint(text)\n```\n```output',
         'text = """\n```\nls\n```\n"""\nprint(text)'),
        ("```python\ntext = '''\n```python\n'''\n```", "text = '''\n```python\n'''"),
        ('```python\n# it\'s """\nx = 1\n```\nand """', '# it\'s """\nx = 1'),
        ("```python\nx = '\"\"\"'\n```\n\"\"\"", "x = '\"\"\"'"),
        ('```python\nx = """a\n```\nnever closed', 'x = """a'),
        ("````python\nx = '''\n```\n'''\n````", "x = '''\n```\n'''"),
        ("```python\nx = 1\n```python\ny = 2\n```", "x = 1\ny = 2"),
    ],
)  # fmt: skip
def test_a_fenced_program_ends_where_it_compiles(action: str, code: str) -> None:
    assert fenced_code(action) == code


@pytest.mark.parametrize("opening", ["```pyth\n", "```javascript\n", "```\n", "```pypy\n"])
def test_another_language_is_not_python(opening: str) -> None:
    assert list(python_blocks(f"{opening}x = 1\n```")) == []


def test_json_is_followed_as_the_library_reads_it() -> None:
    """A text is complete if `json.loads` makes an object of it, whatever pieces it comes in."""
    chance = random.Random(3)
    atoms = [
        *'{}[]",:\\ntu0123456789.-+eE \n\x01é',
        '"a"',
        "true",
        "null",
        "-0.5e3",
        "\\u00e9",
        "{}",
    ]
    objects = 0
    for _ in range(20_000):
        text = "{" + "".join(chance.choices(atoms, k=chance.randint(0, 7))) + "}"
        try:
            json.loads(text, parse_constant=lambda name: 1 / 0)
            whole = True
        except (ValueError, ZeroDivisionError):
            whole = False
        objects += whole
        pieces = JsonPrefix()
        for character in text:
            pieces.feed(character)
        once = JsonPrefix()
        once.feed(text)
        assert pieces.complete == once.complete == whole, text
    assert objects > 100
