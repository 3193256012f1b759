"""The policy's requests to `bash`, and their form in the text of an action; pure.

Three ways of writing are understood, and the block that ends last counts:

    <bash> command </bash>
    <tool_call>{"name": "bash", "arguments": {"command": ...}}</tool_call>
    <function=bash><parameter=command>...</parameter></function>

The last is how R2E-Gym's agents write; its names of functions are understood too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from toolsvc.plugin.actions import InvalidAction, last_block, last_call, last_ends
from toolsvc.tools.edits import NEEDED, Edit
from toolsvc.tools.function_call import CLOSING, OPENING, parse_function
from toolwright.reading.actions import Tags


class BashArguments(Edit):
    """Either `command`, or `edit`, `path` and the arguments of that edit."""

    command: str | None = Field(default=None, description="for the shell; may have many lines")
    edit: Literal["view", "create", "str_replace", "insert", "undo"] | None = Field(
        default=None, description="a file tool, instead of a command"
    )
    path: str | None = Field(default=None, description="of the file, or of a folder to view")
    finish: bool = Field(default=False, description="ends the task")

    @model_validator(mode="after")
    def _one_request(self) -> Self:
        given = [self.command is not None, self.edit is not None, self.finish]
        if sum(given) != 1:
            raise ValueError("give a command, or an edit")
        if self.edit is not None:
            self.require(NEEDED[self.edit], self.edit)
        self.check_texts(self.command, self.path)
        self.check_path(self.path)
        return self


CALL = Tags("<tool_call>", "</tool_call>")
STOPS = ("</bash>", CALL.close, CLOSING)
_OPENINGS = {"</bash>": "<bash>", CLOSING: OPENING}

_SHELL = ("bash", "execute_bash")
_FILES = ("edit", "file_editor", "str_replace_editor")
_END = ("finish", "submit")


def find_request(action: str) -> dict[str, Any]:
    """Arguments, not yet checked against `BashArguments`. Raises InvalidAction if the action has no
    block."""
    ends = last_ends(action, STOPS, (CALL,))
    if not ends:
        raise InvalidAction(f"the action has none of {', '.join(STOPS)}")
    closing = max(ends, key=ends.__getitem__)
    if closing == CALL.close:
        return _request(*last_call(action, *CALL))
    body = last_block(action, _OPENINGS[closing], closing)
    if closing == "</bash>":
        return {"command": body.strip("\r\n")}
    return _request(*parse_function(body))


def _request(name: object, arguments: Mapping[str, Any]) -> dict[str, Any]:
    given = dict(arguments)
    if name in _END:
        return {"finish": True}
    if name in _SHELL:
        if "cmd" in given:
            given["command"] = given.pop("cmd")
        return given
    if name in _FILES:
        if "command" in given:
            given["edit"] = str(given.pop("command")).removesuffix("_edit")
        return given
    raise InvalidAction(f"there is no function {name!r}, only bash, edit and finish")
