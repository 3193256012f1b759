"""Which layout a row has, told by its keys. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.offline.conversations import hermes, openai
from engine.offline.conversations.types import BrokenRow, Conversation
from engine.types import ToolSpec

_WANTED = (
    'a line is {"messages": [{"role", "content"}, ...]}, with "tools" where it has some, or '
    '{"conversations": [{"from", "value"}, ...]} with <tools>, <tool_call> and <tool_response>'
)

LONGEST_ID = 200
"""Characters. What is longer is no name but some text of the row."""


def conversation(row: Any, number: int, tools: Sequence[ToolSpec] = ()) -> Conversation:
    """A row, numbered from 1 in its file, as a conversation. BrokenRow says what is wrong with it.

    Its id is the row's own where that is an integer or a text of at most LONGEST_ID characters, and
    its number else. `conversations` is Hermes' key. `messages` is OpenAI's, and Hermes' too where
    texts say so. Structured calls are OpenAI's under either key, or they would be lost.

    tools: those of a row that carries none; their schemas say which arguments a table filled in.
    """
    if not isinstance(row, Mapping):
        raise BrokenRow(f"{_WANTED}; this one is a {type(row).__name__}")
    identity = _identity(row.get("id"), number)
    if "conversations" in row:
        if openai.calls_so(row["conversations"]):
            return openai.conversation({**row, "messages": row["conversations"]}, identity, tools)
        return hermes.conversation(row, identity)
    if "messages" not in row:
        keys = ", ".join(f"{key!r:.40}" for key in list(row)[:8]) or "none"
        raise BrokenRow(f"{_WANTED}; this one has the keys {keys}")
    if hermes.writes_so(row["messages"]) and not openai.calls_so(row["messages"]):
        return hermes.conversation(row, identity)
    return openai.conversation(row, identity, tools)


def _identity(found: Any, number: int) -> str:
    if isinstance(found, int) and not isinstance(found, bool) and abs(found) < 10**LONGEST_ID:
        return str(found)
    return found if isinstance(found, str) and 0 < len(found) <= LONGEST_ID else str(number)
