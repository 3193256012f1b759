"""Finds the tool and its arguments in the text of an action; pure.

Invariants
- What cannot be understood is an `InvalidAction` with a reason that the policy may read, never
  an error of the service, and no tool runs for it.
- Only the last block of an action counts; a block starts after the end of the one before, so a
  body may contain its own opening tag.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from toolsvc.plugin.bounds import OutOfBounds, read_json
from toolsvc.types import ActionFormat, Descriptor, JsonCallFormat, TagFormat

UNREAD = "$action"
"""The one argument of an action that its format could not read: its text."""


class InvalidAction(Exception):
    """The action could not be understood; the message is shown to the policy."""


def find_tool(
    action: str, tools: Iterable[Descriptor], accepts: Callable[[str], bool] = lambda name: True
) -> str:
    """Name of the tool that the action calls. InvalidAction if it calls none.

    `accepts`: whether the tool of that name would take the action; asked where a raw format leaves
    it to the tool. The first that does is the one.
    """
    tools = list(tools)
    best, best_at = "", -1
    named: dict[JsonCallFormat, object] = {}
    for tool in tools:
        close = _closing(tool.format)
        if close is None:
            continue
        at = action.rfind(close)
        if at < 0:
            continue
        if isinstance(tool.format, JsonCallFormat):
            if tool.format not in named:  # read once, however many tools are called in JSON
                named[tool.format] = _named(action, tool.format)
            if named[tool.format] != tool.name:
                continue
        if at > best_at:
            best, best_at = tool.name, at
    if best:
        return best
    for tool in tools:
        if _closing(tool.format) is None and accepts(tool.name):
            return tool.name
    if len(tools) == 1:
        return tools[0].name
    wanted = ", ".join(tool.name for tool in tools)
    raise InvalidAction(f"the action calls none of the tools: {wanted}")


def parse_arguments(action: str, tool: Descriptor) -> dict[str, Any]:
    """Arguments of the action's last block, not yet checked. InvalidAction if there is none."""
    form = tool.format
    if isinstance(form, TagFormat):
        return {form.argument: last_block(action, form.open, form.close)}
    if isinstance(form, JsonCallFormat):
        call = _json_call(action, form)
        if call.get("name") != tool.name:
            raise InvalidAction(f"the call names {call.get('name')!r}, not {tool.name!r}")
        arguments = call.get("arguments", {})
        if not isinstance(arguments, Mapping):
            raise InvalidAction('"arguments" must be a JSON object')
        return dict(arguments)
    return {"action": action}


def read_or_keep(action: str, tool: Descriptor) -> dict[str, Any]:
    """Arguments as the tool's format has them, or the action as UNREAD: for a tool that stands for
    another, which alone can tell what it makes of such an action."""
    try:
        return parse_arguments(action, tool)
    except InvalidAction:
        return {UNREAD: action}


def _closing(form: ActionFormat) -> str | None:
    return form.close if isinstance(form, TagFormat | JsonCallFormat) else None


def _named(action: str, form: JsonCallFormat) -> object:
    try:
        return _json_call(action, form).get("name")
    except InvalidAction:
        return None


def _json_call(action: str, form: JsonCallFormat) -> Mapping[str, Any]:
    body = last_block(action, form.open, form.close)
    try:
        call = read_json(body)
    except OutOfBounds as error:
        raise InvalidAction(f"the call is not valid JSON: {error}") from error
    if not isinstance(call, Mapping):
        raise InvalidAction("the call must be a JSON object with name and arguments")
    return call


def last_block(action: str, opening: str, closing: str) -> str:
    """What stands between the marks that end last. InvalidAction if there are none."""
    end = action.rfind(closing)
    if end < 0:
        raise InvalidAction(f"the action has no {opening}...{closing} block")
    after = action.rfind(closing, 0, end)
    start = action.find(opening, after + len(closing) if after >= 0 else 0, end)
    if start < 0:
        raise InvalidAction(f"{closing} without {opening}")
    return action[start + len(opening) : end]
