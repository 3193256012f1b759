"""Finds the tool and its arguments in the text of an action; pure.

Invariants
- An action that makes no sense is an `InvalidAction` with a reason for the policy, never an error
  of the service, and no tool runs for it.
- Only the last block of an action counts. `toolwright.reading.actions` reads it, here and in the
  engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from toolsvc.types import ActionFormat, Descriptor, JsonCallFormat, RawFormat, TagFormat
from toolwright.reading import actions as reading
from toolwright.reading.action_ends import Grammar, counted
from toolwright.reading.actions import JsonCall, Tags

RAW = "action"
"""The one argument of a raw format: the action's text."""
UNREAD = "$action"
"""The one argument of an action that its format could not read: its text."""


class InvalidAction(Exception):
    """The action could not be understood; the message is shown to the policy."""


def find_tool(
    action: str, tools: Iterable[Descriptor], accepts: Callable[[str], bool] = lambda name: True
) -> str:
    """Name of the tool that the action calls. Raises InvalidAction if it calls no tool.

    accepts: whether a tool with a raw format takes the action, by its name. The first that does is
    called.
    """
    tools = list(tools)
    best, best_at = "", -1
    ends: Mapping[str, int] = {}
    for tool in tools:
        close = _closing(tool.format)
        if close is not None and close not in ends:
            ends = {**ends, close: action.rfind(close)}
    if len(ends) > 1 and sum(at >= 0 for at in ends.values()) > 1:
        json = [tool.format for tool in tools if isinstance(tool.format, JsonCallFormat)]
        ends = last_ends(action, ends, [Tags(form.open, form.close) for form in json])
    named: dict[JsonCallFormat, JsonCall] = {}
    for tool in tools:
        form = tool.format
        at = ends.get(_closing(form) or "", -1)
        if at <= best_at:
            continue
        if isinstance(form, JsonCallFormat):
            if form not in named:  # read once, however many tools are called in JSON
                named[form] = reading.last_call(action, Tags(form.open, form.close))
            if named[form].name != tool.name:
                continue
        best, best_at = tool.name, at
    if best:
        return best
    for tool in tools:
        if _closing(tool.format) is None and accepts(tool.name):
            return tool.name
    if len(tools) == 1:
        return tools[0].name
    fault = next((call.fault for call in named.values() if call.fault), "")
    wanted = ", ".join(tool.name for tool in tools)
    why = f" ({fault})" if fault else ""
    raise InvalidAction(f"the action calls none of the tools: {wanted}{why}")


def last_ends(action: str, closing: Iterable[str], json: Iterable[Tags] = ()) -> Mapping[str, int]:
    """Position of the last of each closing tag. json: tags of JSON calls; inside their strings no
    tag counts."""
    last = {close: at for close in dict.fromkeys(closing) if (at := action.rfind(close)) >= 0}
    if len(last) < 2:
        return last
    grammar = Grammar(ends=tuple(last), json=tuple(dict.fromkeys(json)))
    return {place.tag: place.start for place in counted(action, grammar).ends}


def parse_arguments(action: str, tool: Descriptor) -> dict[str, Any]:
    """Arguments of the action's last block, not yet checked. Raises InvalidAction if it has no
    block."""
    form = tool.format
    if isinstance(form, TagFormat):
        return {form.argument: last_block(action, form.open, form.close)}
    if isinstance(form, JsonCallFormat):
        name, arguments = last_call(action, form.open, form.close)
        if name != tool.name:
            raise InvalidAction(f"the call names {name!r}, not {tool.name!r}")
        return arguments
    return {RAW: action}


def read_or_keep(action: str, tool: Descriptor) -> dict[str, Any]:
    """Arguments as the tool's format has them, or the action as UNREAD. For a tool that stands for
    another one: only the other knows whether it understands such an action."""
    try:
        return parse_arguments(action, tool)
    except InvalidAction:
        return {UNREAD: action}


def _closing(form: ActionFormat) -> str | None:
    return None if isinstance(form, RawFormat) else form.close


def last_block(action: str, opening: str, closing: str) -> str:
    """Text between the marks that end last. Raises InvalidAction without such marks."""
    begin, end = reading.last_span(action, opening, closing)
    if begin < 0:
        raise InvalidAction(reading.no_block(end, opening, closing))
    return action[begin:end]


def last_call(action: str, opening: str, closing: str) -> tuple[str, dict[str, Any]]:
    """Name and arguments of the JSON call that ends last. Raises InvalidAction if it is not a
    call."""
    call = reading.last_call(action, Tags(opening, closing))
    if call.fault:
        raise InvalidAction(call.fault)
    return call.name, dict(call.arguments or {})
