"""Which layout a row has, told by its keys. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.conversations import hermes, openai
from engine.conversations.types import BrokenRow, Conversation

_WANTED = (
    'a line is {"messages": [{"role", "content"}, ...]}, with "tools" where it has some, or '
    '{"conversations": [{"from", "value"}, ...]} with <tools>, <tool_call> and <tool_response>'
)


def conversation(row: Any, number: int) -> Conversation:
    """A row, numbered from 1 in its file, as a conversation. BrokenRow says what is wrong with it.

    `conversations` is Hermes' key. `messages` is OpenAI's, and Hermes' too where texts say so.
    """
    if not isinstance(row, Mapping):
        raise BrokenRow(f"{_WANTED}; this one is a {type(row).__name__}")
    identity = str(row.get("id", number))
    if "conversations" in row:
        return hermes.conversation(row, identity)
    if "messages" not in row:
        keys = ", ".join(str(key)[:40] for key in list(row)[:8]) or "none"
        raise BrokenRow(f"{_WANTED}; this one has the keys {keys}")
    if hermes.writes_so(row["messages"]):
        return hermes.conversation(row, identity)
    return openai.conversation(row, identity)
