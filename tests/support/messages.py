"""Messages of a chat, in OpenAI's layout."""

from __future__ import annotations

from typing import Any

Message = dict[str, Any]


def system(content: Any) -> Message:
    return {"role": "system", "content": content}


def user(content: Any = "q") -> Message:
    return {"role": "user", "content": content}


def assistant(content: Any = None, *calls: Message) -> Message:
    return {"role": "assistant", "content": content, **({"tool_calls": [*calls]} if calls else {})}


def tool(content: Any, **more: str) -> Message:
    return {"role": "tool", **more, "content": content}


def call(name: str, arguments: Any, **more: str) -> Message:
    """arguments: as the message has them, an object or its JSON."""
    return {**more, "type": "function", "function": {"name": name, "arguments": arguments}}
