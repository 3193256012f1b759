"""Finds the request in the text of an action; pure.

    <tool_call>{"name": "crop_image_normalized", "arguments": {"bbox_2d": [...], ...}}</tool_call>

The call names the function. It may also name the tool, and the function among the arguments, as a
caller does that knows nothing but the tool's schema. The last block counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolsvc.plugin.actions import InvalidAction
from toolsvc.plugin.bounds import OutOfBounds, read_json
from toolsvc.tools.image.arguments import Function

OPEN, CLOSE = "<tool_call>", "</tool_call>"


def find_request(action: str, tool: str) -> dict[str, Any]:
    """Arguments, not yet checked against `ImageArguments`. InvalidAction if there is no block, or
    if it is no call of a function."""
    end = action.rfind(CLOSE)
    start = action.rfind(OPEN, 0, max(end, 0))
    if end < 0 or start < 0:
        raise InvalidAction(f"the action has no {OPEN}...{CLOSE} block")
    try:
        call = read_json(action[start + len(OPEN) : end])
    except OutOfBounds as error:
        raise InvalidAction(f"the call is not valid JSON: {error}") from error
    if not isinstance(call, Mapping) or not isinstance(call.get("arguments", {}), Mapping):
        raise InvalidAction("the call must be a JSON object with name and arguments")
    name, arguments = call.get("name"), dict(call.get("arguments", {}))
    if name == tool:
        return arguments
    if name not in list(Function):
        raise InvalidAction(f"there is no function {name!r}, only {', '.join(Function)}")
    return {**arguments, "function": name}
