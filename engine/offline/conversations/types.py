"""A recorded conversation, independent of its layout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.types import ToolSpec
from toolwright.reading.task_rows.refusal import RowRefused


class BrokenRow(RowRefused):
    """A row that is not a conversation; the text names the message of the row and the fix."""

    def __init__(self, reason: str) -> None:
        super().__init__("conversation", reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedConversation:
    """One row."""

    id: str
    """The row's own id, or the number of its line."""
    messages: tuple[Mapping[str, Any], ...]
    """OpenAI's messages, with structured `tool_calls`. Only the parts of the layout are checked;
    the protocol that renders them checks the rest."""
    tools: tuple[ToolSpec, ...] | None = None
    """The row's tools; None if it has no list of tools."""
    with_tool_list: tuple[Mapping[str, Any], ...] | None = None
    """The same messages with the row's own system message that lists the tools, for a policy whose
    prompts show no tools otherwise; None without such a message."""
    untrained: frozenset[int] = frozenset()
    """Positions, among the assistant's messages, of those without loss (`"weight": 0`)."""
