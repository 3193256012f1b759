"""Finds the request in the text of an action; pure.

    <tool_call>{"name": "crop_image_normalized", "arguments": {"bbox_2d": [...], ...}}</tool_call>

The call names the function. It may also name the tool, and the function among the arguments, as a
caller does that knows nothing but the tool's schema. The last block counts.
"""

from __future__ import annotations

from typing import Any

from toolsvc.plugin.actions import InvalidAction, last_call
from toolsvc.tools.image.arguments import Function

OPEN, CLOSE = "<tool_call>", "</tool_call>"


def find_request(action: str, tool: str) -> dict[str, Any]:
    """Arguments, not yet checked against `ImageArguments`. InvalidAction if there is no block, or
    if it is no call of a function."""
    name, arguments = last_call(action, OPEN, CLOSE)
    if name == tool:
        return arguments
    if name not in list(Function):
        raise InvalidAction(f"there is no function {name!r}, only {', '.join(Function)}")
    return {**arguments, "function": name}
