"""The layout of OpenAI's Responses API: a request's `input` and a response's `output` items.

NeMo Gym's rollouts are rows with `responses_create_params`, the request, and `response`. A row with
`input` and `output` of its own is read too. Reasoning items are left out. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from engine.offline.conversations import openai
from engine.offline.conversations.types import BrokenRow, RecordedConversation
from engine.types import ToolSpec

_REQUEST, _RESPONSE = "responses_create_params", "response"


def has_items(row: Mapping[str, Any]) -> bool:
    """Whether a row has the keys of this layout."""
    return _REQUEST in row or ("input" in row and isinstance(row.get("output"), list))


def conversation(
    row: Mapping[str, Any], identity: str, tools: Sequence[ToolSpec] = ()
) -> RecordedConversation:
    """Reads a row. tools: for a row without tools.

    Raises RowRefused with the item's number, from 1 over input and output, or the message's number
    among those that the items become.
    """
    request, response = (row[_REQUEST], row.get(_RESPONSE)) if _REQUEST in row else (row, row)
    if not isinstance(request, Mapping) or not isinstance(response, Mapping):
        raise BrokenRow(f"{_REQUEST!r} and {_RESPONSE!r} must be objects: write the whole rollout")
    messages = list(_messages([*_opening(request), *_listed(response, "output")]))
    found = {"messages": messages, "tools": _functions(request.get("tools"))}
    return openai.conversation(found, identity, tools)


def _opening(request: Mapping[str, Any]) -> Sequence[Any]:
    given = request.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else None
    items = list(_listed(request, "input")) if items is None else items
    instructions = request.get("instructions")
    return [{"role": "system", "content": instructions}, *items] if instructions else items


def _listed(found: Mapping[str, Any], key: str) -> Sequence[Any]:
    items = found.get(key)
    if not isinstance(items, list):
        raise BrokenRow(f"{key!r} is a {type(items).__name__}: write a list of items")
    return items


def _functions(tools: Any) -> Any:
    """The request's functions. Tools that the API's own server runs have no calls in the items."""
    if not isinstance(tools, list):
        return tools
    return [one for one in tools if not isinstance(one, Mapping) or "name" in one] or None


def _messages(items: Sequence[Any]) -> Iterator[Mapping[str, Any]]:
    """Chat messages. A text and the calls after it are one message of the assistant; an item
    between two calls, other than reasoning, begins another one."""
    spoken: dict[str, Any] | None = None
    for number, item in enumerate(items, 1):
        if not isinstance(item, Mapping):
            raise BrokenRow(
                f"item {number} is a {type(item).__name__}: write an object; lists of transitions "
                "are not read"
            )
        kind = item.get("type") or "message"
        if kind == "reasoning":
            continue
        if kind == "function_call":
            spoken = spoken or {"role": "assistant", "content": None}
            spoken.setdefault("tool_calls", []).append(_call(item))
            continue
        if spoken is not None:
            yield spoken
            spoken = None
        if kind == "function_call_output":
            yield {
                "role": "tool",
                "tool_call_id": item.get("call_id"),
                "content": item.get("output"),
            }
        elif kind != "message":
            raise BrokenRow(
                f"item {number} is a {kind!r:.80}: only messages, reasoning, function_call and "
                "function_call_output are read"
            )
        elif item.get("role") == "assistant":
            spoken = {"role": "assistant", "content": item.get("content")}
        else:
            yield {"role": item.get("role"), "content": item.get("content")}
    if spoken is not None:
        yield spoken


def _call(item: Mapping[str, Any]) -> Mapping[str, Any]:
    function = {"name": item.get("name"), "arguments": item.get("arguments")}
    return {"id": item.get("call_id"), "type": "function", "function": function}
