"""Messages in the form that chat templates take. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from ingress.types import Message


def template_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Messages for a chat template. Arguments are objects; text that is not JSON stays text."""
    return [_message(message) for message in messages]


def in_call_order(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The messages with tool results in the order of their calls.

    Some agents send the results of parallel calls as they arrive (Claude Code). Most templates
    write no ids, so the policy sees the order alone. A result with an unknown id comes last.
    """
    found: list[Message] = []
    places: dict[str, int] = {}
    for role, group in groupby(messages, key=lambda message: message.role):
        turn = list(group)
        if role == "assistant":
            places = {call.id: place for place, call in enumerate(turn[-1].calls)}
        elif role == "tool":
            ranks = [places.get(one.call_id, len(places)) for one in turn]
            turn = [turn[at] for at in sorted(range(len(turn)), key=ranks.__getitem__)]
        found += turn
    return tuple(found)


def _message(message: Message) -> dict[str, Any]:
    found: dict[str, Any] = {"role": message.role, "content": message.text}
    if message.name:
        found["name"] = message.name
    if message.role == "tool":
        found["tool_call_id"] = message.call_id
    if message.reasoning:
        found["reasoning_content"] = message.reasoning
    if message.calls:
        found["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": _arguments(call.arguments)},
            }
            for call in message.calls
        ]
    return found


def _arguments(text: str) -> Any:
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return text
    return found if isinstance(found, dict) else text
