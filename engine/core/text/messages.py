"""Messages of chat templates and APIs: opening, text, and tool calls in OpenAI's form."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from toolwright.types import Task


def opening(task: Task) -> list[Mapping[str, Any]]:
    """The task's messages; a raw prompt is one user message."""
    return list(task.messages) or [{"role": "user", "content": task.prompt}]


def split_opening(
    messages: Sequence[Mapping[str, Any]],
) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    """(messages before the first assistant message, the rest). Raises ValueError without either."""
    for position, message in enumerate(messages):
        if message.get("role") == "assistant":
            if position == 0:
                break
            return list(messages[:position]), list(messages[position:])
    raise ValueError("a conversation needs an assistant message, and messages before the first one")


def content_of(message: Mapping[str, Any]) -> str:
    """Text of a message; a list of parts is joined. Raises ValueError for anything else."""
    content = message.get("content")
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(isinstance(p, Mapping) and "text" in p for p in content):
        return "".join(str(part["text"]) for part in content)
    raise ValueError(
        f"message of {message.get('role')!r} has content that is not text: write a text or a list "
        "of text parts"
    )


def calls_of(message: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """(name, arguments) of OpenAI-style tool_calls. Raises ValueError for broken arguments."""
    calls = []
    for call in message.get("tool_calls") or ():
        function = call.get("function", call)
        arguments = function.get("arguments", {})
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments)
            except json.JSONDecodeError as error:
                raise ValueError(f"tool call {function.get('name')!r}: {error}") from error
        calls.append((str(function["name"]), arguments))
    return calls
