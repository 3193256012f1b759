"""A conversation in the layouts that other trainers read; pure.

What comes in are chat messages as `engine sample --export jsonl` writes them, and the tools as
function-calling schemas. Every layout gives one row, {"messages": [...], "tools": [...]}; without
tools there is no such key.

Invariants
- A row says all of its conversation, and nothing else: what a layout would make ambiguous is
  refused (Unsayable), so that whoever cuts a text at its tags finds the calls that were made.
- Messages and tools that come in are not changed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

Row = dict[str, Any]
Message = Mapping[str, Any]
Function = Mapping[str, Any]
"""{"type": "function", "function": {"name", "description", "parameters"}}."""

CALL_OPEN, CALL_CLOSE = "<tool_call>", "</tool_call>"
RESPONSE_OPEN, RESPONSE_CLOSE = "<tool_response>", "</tool_response>"
TOOLS_OPEN, TOOLS_CLOSE = "<tools>", "</tools>"
_TAGS = (CALL_OPEN, CALL_CLOSE, RESPONSE_OPEN, RESPONSE_CLOSE, TOOLS_OPEN, TOOLS_CLOSE)


class Unsayable(ValueError):
    """The layout has no row for the conversation; the message says why."""


class Layout(StrEnum):
    """What other trainers read."""

    JSONL = "jsonl"
    """Messages as the engine tells them; tools where the prompt shows them."""
    OPENAI = "openai"
    """Calls as `tool_calls`, the tools in every row."""
    HERMES = "hermes"
    """Calls and results as tagged text, the tools in a system message and in the row."""

    @property
    def suffix(self) -> str:
        """Of its files."""
        return ".jsonl" if self is Layout.JSONL else f".{self}.jsonl"


def row_in(layout: Layout, conversation: Mapping[str, Any], functions: Sequence[Function]) -> Row:
    """A conversation of `messages`, with its session's tools. Unsayable."""
    if layout is Layout.JSONL:
        return dict(conversation)
    to = to_openai if layout is Layout.OPENAI else to_hermes
    return to(conversation["messages"], functions)


def to_openai(messages: Sequence[Message], tools: Sequence[Function]) -> Row:
    """OpenAI's chat format: an assistant that calls and says nothing has content None."""
    return _row([_openai(message) for message in messages], tools)


def to_hermes(messages: Sequence[Message], tools: Sequence[Function]) -> Row:
    """NousResearch's Hermes format: each call is JSON between <tool_call> and </tool_call> in what
    the assistant says, each result stands between <tool_response> and </tool_response> in a message
    of role `tool`, and `hermes_system(tools)` ends the system message, which comes first.

    Unsayable for content that is no text, for a text of the assistant that holds a tag of a call
    itself, and for a result that holds a tag of a response. Texts of the system and of users are
    not looked at: a prompt may well show how a call is written, and nobody reads calls there.
    """
    told: list[Row] = []
    rest = list(messages)
    note = hermes_system(tools)
    if note:
        own = ""
        if rest and rest[0].get("role") == "system":
            own = _text(rest.pop(0))
        told.append({"role": "system", "content": f"{own}\n\n{note}" if own else note})
    return _row([*told, *map(_hermes, rest)], tools)


def hermes_system(tools: Sequence[Function]) -> str:
    """What tells the tools in a system message, the last part of it; "" without tools."""
    if not tools:
        return ""
    signatures = "\n".join(json_without_tags(tool) for tool in tools)
    return (
        "Functions may be called. Their signatures stand between "
        f"{TOOLS_OPEN} and {TOOLS_CLOSE}, one a line:\n"
        f"{TOOLS_OPEN}\n{signatures}\n{TOOLS_CLOSE}\n"
        "A call is a JSON object with the function's name and its arguments, between tags:\n"
        f'{CALL_OPEN}\n{{"name": <function>, "arguments": <object>}}\n{CALL_CLOSE}\n'
        f"What comes of it stands between {RESPONSE_OPEN} and {RESPONSE_CLOSE}."
    )


def json_without_tags(value: Any) -> str:
    """JSON in which no tag of the layout stands: where one would, `<` is written as an escape."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError as error:
        raise Unsayable("a number that is no JSON") from error
    return text.replace("<", "\\u003c") if any(tag in text for tag in _TAGS) else text


def json_line(row: Mapping[str, Any]) -> bytes:
    """A line of a file. Half a surrogate pair, which is no UTF-8, is written as an escape."""
    try:
        return json.dumps(row, ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:
        return json.dumps(row).encode() + b"\n"


def _row(messages: list[Row], tools: Sequence[Function]) -> Row:
    return {"messages": messages, "tools": list(tools)} if tools else {"messages": messages}


def _openai(message: Message) -> Row:
    told = dict(message)
    if told.get("tool_calls") and not told.get("content"):
        told["content"] = None
    return told


def _hermes(message: Message) -> Row:
    role, text = message.get("role"), _text(message)
    if role == "tool":
        _refuse(text, (RESPONSE_OPEN, RESPONSE_CLOSE))
        return {"role": "tool", "content": f"{RESPONSE_OPEN}\n{text}\n{RESPONSE_CLOSE}"}
    if role == "assistant":
        _refuse(text, (CALL_OPEN, CALL_CLOSE))
        calls = [_call(call) for call in message.get("tool_calls") or ()]
        text = "\n".join([*([text] if text else []), *calls])
    return {"role": role, "content": text}


def _call(call: Mapping[str, Any]) -> str:
    function = call["function"]
    arguments = function["arguments"]
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError) as error:
            raise Unsayable("arguments that are no JSON") from error
    body = json_without_tags({"name": function["name"], "arguments": arguments})
    return f"{CALL_OPEN}\n{body}\n{CALL_CLOSE}"


def _text(message: Message) -> str:
    content = message.get("content")
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(
        isinstance(part, Mapping) and isinstance(part.get("text"), str) for part in content
    ):
        return "".join(part["text"] for part in content)
    raise Unsayable("content that is no text")


def _refuse(text: str, tags: Sequence[str]) -> None:
    for tag in tags:
        if tag in text:
            raise Unsayable(f"a text that holds {tag} itself")
