"""A conversation in the layouts that other trainers read; pure.

The input is chat messages as `engine sample --export jsonl` writes them, and tools as
function-calling schemas. Every layout gives one row, {"messages": [...], "tools": [...]}; the
second key is absent without tools.

Invariants
- A row holds all of its conversation and nothing else. What a layout would make ambiguous raises
  NotExportable, so a reader that cuts a text at its tags finds exactly the calls that were made.
- Input messages and tools are not changed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from engine.offline.enums import ExportLayout

Row = dict[str, Any]
Message = Mapping[str, Any]
Function = Mapping[str, Any]
"""{"type": "function", "function": {"name", "description", "parameters"}}."""

CALL_OPEN, CALL_CLOSE = "<tool_call>", "</tool_call>"
RESPONSE_OPEN, RESPONSE_CLOSE = "<tool_response>", "</tool_response>"
TOOLS_OPEN, TOOLS_CLOSE = "<tools>", "</tools>"
_TAGS = (CALL_OPEN, CALL_CLOSE, RESPONSE_OPEN, RESPONSE_CLOSE, TOOLS_OPEN, TOOLS_CLOSE)


class NotExportable(ValueError):
    """A layout cannot hold the trajectory; the message is the reason."""


def export_row(
    layout: ExportLayout, conversation: Mapping[str, Any], functions: Sequence[Function]
) -> Row:
    """The row of a conversation with its session's tools. Raises NotExportable.

    conversation: from `engine.offline.collect.messages`.
    """
    if layout is ExportLayout.JSONL:
        return dict(conversation)
    to = to_openai if layout is ExportLayout.OPENAI else to_hermes
    return to(conversation["messages"], functions)


def to_openai(messages: Sequence[Message], tools: Sequence[Function]) -> Row:
    """OpenAI's chat format. An assistant message with calls and no text has content None."""
    return _row([_openai(message) for message in messages], tools)


def to_hermes(messages: Sequence[Message], tools: Sequence[Function]) -> Row:
    """NousResearch's Hermes format.

    A call is JSON between <tool_call> and </tool_call> in the assistant's text. A result stands
    between <tool_response> and </tool_response> in a message of role `tool`. The system message
    comes first and ends with `hermes_system(tools)`.

    Raises NotExportable for content that is not text, for an assistant's text with a tag of calls,
    and for a result with a tag of responses. Other texts may hold tags: a prompt may show how a
    call is written, and no reader looks for calls there.
    """
    written: list[Row] = []
    rest = list(messages)
    note = hermes_system(tools)
    if note:
        own = ""
        if rest and rest[0].get("role") == "system":
            own = _text(rest.pop(0))
        written.append({"role": "system", "content": f"{own}\n\n{note}" if own else note})
    return _row([*written, *map(_hermes, rest)], tools)


def hermes_system(tools: Sequence[Function]) -> str:
    """The end of a system message, which lists the tools; "" without tools."""
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
    """JSON without a tag of the layout: `<` becomes an escape if the JSON would hold one."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError as error:
        raise NotExportable("a number that JSON cannot hold") from error
    return text.replace("<", "\\u003c") if any(tag in text for tag in _TAGS) else text


def json_line(row: Mapping[str, Any]) -> bytes:
    """A line of a file. Half a surrogate pair, which UTF-8 cannot hold, becomes an escape."""
    try:
        return json.dumps(row, ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:
        return json.dumps(row).encode() + b"\n"


def _row(messages: list[Row], tools: Sequence[Function]) -> Row:
    return {"messages": messages, "tools": list(tools)} if tools else {"messages": messages}


def _openai(message: Message) -> Row:
    written = dict(message)
    if written.get("tool_calls") and not written.get("content"):
        written["content"] = None
    return written


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
            raise NotExportable("arguments that are not JSON") from error
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
    raise NotExportable("content that is not text")


def _refuse(text: str, tags: Sequence[str]) -> None:
    for tag in tags:
        if tag in text:
            raise NotExportable(f"a text that holds {tag} itself")
