"""The layout of OpenAI's chat fine-tuning: `messages` with structured `tool_calls`, and `tools`.

The older spelling of the same, `functions` and `function_call`, is read too. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.offline.conversations.functions import tools_in
from engine.offline.conversations.types import BrokenRow, RecordedConversation
from engine.types import ToolSpec
from toolwright.reading.task_rows.messages import read_messages


def conversation(
    row: Mapping[str, Any], identity: str, tools: Sequence[ToolSpec] = ()
) -> RecordedConversation:
    """Reads a row. tools: for a row without tools.

    Raises RowRefused with the message's number, from 1, and the fix.
    """
    listed = row.get("tools")
    listed = row.get("functions") if listed is None else listed
    own = None if listed is None else tools_in(listed)
    schemas = {tool.name: tool.arguments_schema for tool in (tools if own is None else own)}
    messages = read_messages(messages_in(row, "messages"), schemas)
    check_answers(messages)
    spoken = [one for one in messages if one["role"] == "assistant"]
    return RecordedConversation(
        id=identity,
        messages=messages,
        tools=own,
        untrained=untrained_positions(spoken),
    )


def has_structured_calls(messages: Any) -> bool:
    """Whether one of the messages has structured calls."""
    return any(
        isinstance(one, Mapping) and bool(one.get("tool_calls") or one.get("function_call"))
        for one in (messages if isinstance(messages, list) else ())
    )


def untrained_positions(spoken: Sequence[Mapping[str, Any]]) -> frozenset[int]:
    """Positions, among the assistant's messages, of those with `"weight": 0`."""
    return frozenset(place for place, one in enumerate(spoken) if one.get("weight") == 0)


def messages_in(row: Mapping[str, Any], key: str) -> Sequence[Mapping[str, Any]]:
    """The messages of a row. Raises BrokenRow unless they are a list of objects."""
    found = row[key]
    if not isinstance(found, list):
        raise BrokenRow(f"{key!r} is a {type(found).__name__}: write a list of messages")
    for number, one in enumerate(found, 1):
        if not isinstance(one, Mapping):
            raise BrokenRow(f"message {number} is a {type(one).__name__}: write an object")
    return found


def check_answers(messages: Sequence[Mapping[str, Any]]) -> None:
    """Raises BrokenRow unless structured calls and the results after them are one to one.

    Calls of the last message may have no result: the recording ended there.
    """
    for place, one in enumerate(messages):
        calls = one.get("tool_calls")
        if not calls:
            continue
        answers = []
        for later in messages[place + 1 : place + 2 + len(calls)]:
            if later.get("role") != "tool":
                break
            answers.append(later)
        if not answers and place == len(messages) - 1:
            continue
        if len(answers) != len(calls):
            raise BrokenRow(
                f"message {place + 1} has {len(calls)} calls and {len(answers)} results: write a "
                "message of role 'tool' for each call, right after it"
            )
        called = [call.get("id") for call in calls]
        answered = [answer.get("tool_call_id") for answer in answers]
        if None not in called and None not in answered and called != answered:
            raise BrokenRow(
                f"the results after message {place + 1} have other ids than its calls, or another "
                "order: give them the ids of its calls, in their order"
            )
