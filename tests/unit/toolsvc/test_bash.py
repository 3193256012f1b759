"""How an action asks for a command or an edit, and how an outcome is put into words."""

import json
from typing import Any

import pytest

from toolsvc.plugin.actions import InvalidAction
from toolsvc.sandbox.session import Ending, Outcome
from toolsvc.tools.bash.bash_tool import BashTool, as_result
from toolsvc.tools.bash.request import find_request
from toolsvc.tools.sandboxed import shell_report
from toolsvc.types import Text


def function(name: str, **parameters: str) -> str:
    inner = "".join(f"<parameter={key}>{value}</parameter>" for key, value in parameters.items())
    return f"<function={name}>{inner}</function>"


@pytest.mark.parametrize(
    ("action", "request_"),
    [
        ("<bash> ls </bash>", {"command": " ls "}),
        ("<bash>\nls\n</bash> then <bash>pwd</bash>", {"command": "pwd"}),
        ("<bash>echo '<bash>'</bash>", {"command": "echo '<bash>'"}),
        (function("bash", command="ls\n\n"), {"command": "ls\n"}),
        (function("execute_bash", cmd="ls"), {"command": "ls"}),
        (
            function("file_editor", command="undo_edit", path="x"),
            {"edit": "undo", "path": "x"},
        ),
        (
            function("str_replace_editor", command="view", path="x", view_range="[1, -1]"),
            {"edit": "view", "path": "x", "view_range": [1, -1]},
        ),
        (function("edit", command="insert", insert_line="0"), {"edit": "insert", "insert_line": 0}),
        (function("finish"), {"finish": True}),
        (
            '<tool_call>{"name": "bash", "arguments": {"command": "ls"}}</tool_call>',
            {"command": "ls"},
        ),
        (f"<bash>old</bash>{function('submit')}", {"finish": True}),
    ],
)
def test_three_ways_of_writing(action: str, request_: dict[str, Any]) -> None:
    assert find_request(action) == request_


@pytest.mark.parametrize(
    "action",
    [
        "",
        "ls",
        "</bash>",
        "<function=bash</function>",
        "<tool_call>[]</tool_call>",
        '<tool_call>{"name": "bash", "arguments": []}</tool_call>',
        function("python", code="1"),
        function("edit", insert_line="first"),
    ],
)
def test_what_is_not_understood(action: str) -> None:
    with pytest.raises(InvalidAction):
        find_request(action)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "a command, or an edit"),
        ({"command": "ls", "edit": "view", "path": "x"}, "a command, or an edit"),
        ({"edit": "create", "path": "x"}, "create needs file_text"),
        ({"edit": "str_replace"}, "needs path, old_str, new_str"),
        ({"command": "a\0b"}, "NUL"),
        ({"command": "x" * 1_000_001}, "more than 1000000 characters"),
        ({"command": "ls", "shell": "zsh"}, "shell"),
    ],
)
def test_arguments_are_checked(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidAction, match=says):
        BashTool().make_arguments(arguments)


def outcome(output: str, report: object, ending: Ending = Ending.OK) -> Outcome:
    line = report if isinstance(report, str) else json.dumps(report)
    return Outcome(
        ending=ending, output=f"{output}\n{line}", truncated=False, run_seconds=0.1, lost=False
    )


def text(result: Any) -> str:
    (part,) = result.observation
    assert isinstance(part, Text)
    return part.text


@pytest.mark.parametrize(
    "line",
    [
        *("", "null", "[]", '{"exit": "0", "dropped": true}', "{", "x"),
        *(f'{{"exit": {"9" * 400}}}', f'{{"dropped": {"9" * 400}}}'),
    ],
)
def test_a_report_that_is_none_breaks_nothing(line: str) -> None:
    result = as_result(outcome("x", line), 1.0)
    assert text(result) == "x"
    assert result.metrics == {}


@pytest.mark.parametrize(
    "line",
    ["", "[1]", "[" * 100_000, '{"exit": ' + "9" * 400 + "}", '{"exit": true, "dropped": -1}'],
    ids=["none", "list", "deep", "long", "kinds"],
)
def test_a_report_that_was_forged_says_nothing(line: str) -> None:
    assert shell_report(line) == {}
