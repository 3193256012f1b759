"""Recognises the layout of a row by its keys. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.offline.conversations import hermes, openai, responses
from engine.offline.conversations.types import BrokenRow, RecordedConversation
from engine.types import ToolSpec

_WANTED = (
    'a line is {"messages": [{"role", "content"}, ...]}, with "tools" where it has some, or '
    '{"conversations": [{"from", "value"}, ...]} with <tools>, <tool_call> and <tool_response>, or '
    '{"responses_create_params", "response"} with items of the Responses API'
)

LONGEST_ID = 200
"""Longest id, in characters. A longer one is text and no id."""


def conversation(row: Any, number: int, tools: Sequence[ToolSpec] = ()) -> RecordedConversation:
    """Reads a row, numbered from 1 in its file. Raises RowRefused.

    The id is the row's own if it is an integer or a text of at most LONGEST_ID characters, else the
    number. The key `conversations` means Hermes; `messages` means OpenAI, or Hermes if the texts
    are tagged. Structured calls mean OpenAI under either key, or they would be lost. Without
    `messages`, a request and its response mean items of the Responses API.

    tools: for a row without tools; their schemas say which arguments a table filled in.
    """
    if not isinstance(row, Mapping):
        raise BrokenRow(f"{_WANTED}; this one is a {type(row).__name__}")
    identity = _identity(row.get("id"), number)
    if "conversations" in row:
        if openai.has_structured_calls(row["conversations"]):
            return openai.conversation({**row, "messages": row["conversations"]}, identity, tools)
        return hermes.conversation(row, identity)
    if "messages" not in row and responses.has_items(row):
        return responses.conversation(row, identity, tools)
    if "messages" not in row:
        keys = ", ".join(f"{key!r:.40}" for key in list(row)[:8]) or "none"
        raise BrokenRow(f"{_WANTED}; this one has the keys {keys}")
    if hermes.has_tagged_texts(row["messages"]) and not openai.has_structured_calls(
        row["messages"]
    ):
        return hermes.conversation(row, identity)
    return openai.conversation(row, identity, tools)


def _identity(found: Any, number: int) -> str:
    if isinstance(found, int) and not isinstance(found, bool) and abs(found) < 10**LONGEST_ID:
        return str(found)
    return found if isinstance(found, str) and 0 < len(found) <= LONGEST_ID else str(number)
