"""Finds the request in the text of an action; pure.

Three ways of writing are understood, and the block that ends last counts:

    <bash> command </bash>
    <tool_call>{"name": "bash", "arguments": {"command": ...}}</tool_call>
    <function=bash><parameter=command>...</parameter></function>

The last is how R2E-Gym's agents write; its names of functions are understood too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolsvc.plugin.actions import InvalidAction, last_block
from toolsvc.plugin.bounds import OutOfBounds, read_json
from toolsvc.tools.function_call import CLOSING, OPENING, parse_function

STOPS = ("</bash>", "</tool_call>", CLOSING)
_OPENINGS = {"</bash>": "<bash>", "</tool_call>": "<tool_call>", CLOSING: OPENING}

_SHELL = ("bash", "execute_bash")
_FILES = ("edit", "file_editor", "str_replace_editor")
_END = ("finish", "submit")


def find_request(action: str) -> dict[str, Any]:
    """Arguments, not yet checked against `BashArguments`. InvalidAction if there is no block."""
    end, closing = max((action.rfind(stop), stop) for stop in STOPS)
    if end < 0:
        raise InvalidAction(f"the action has none of {', '.join(STOPS)}")
    body = last_block(action, _OPENINGS[closing], closing)
    if closing == "</bash>":
        return {"command": body.strip("\r\n")}
    if closing == "</tool_call>":
        return _json_call(body)
    return _request(*parse_function(body))


def _json_call(body: str) -> dict[str, Any]:
    try:
        call = read_json(body)
    except OutOfBounds as error:
        raise InvalidAction(f"the call is not valid JSON: {error}") from error
    if not isinstance(call, Mapping) or not isinstance(call.get("arguments", {}), Mapping):
        raise InvalidAction("the call must be a JSON object with name and arguments")
    return _request(call.get("name"), call.get("arguments", {}))


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
