"""What a recorded conversation is, whatever its layout was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.types import ToolSpec
from toolwright.reading.task_rows.refusal import RowRefused


class BrokenRow(RowRefused):
    """A row that is no conversation; the message says which message of it, and the fix."""

    def __init__(self, reason: str) -> None:
        super().__init__("conversation", reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """One row.

    id: the row's own, or the number of its line. messages: OpenAI's, with structured `tool_calls`;
    only the layout's own parts are checked, the rest is left to the protocol that renders them.
    tools: those that the row carries, None where it carries none. told: the same messages, but with
    the system message that lists the tools as the row has it, for a policy whose prompts show no
    tools otherwise; None where the row has no such message. untrained: which assistant messages,
    counted from 0 among those of the assistant, are no target of the training (`"weight": 0`)."""

    id: str
    messages: tuple[Mapping[str, Any], ...]
    tools: tuple[ToolSpec, ...] | None = None
    told: tuple[Mapping[str, Any], ...] | None = None
    untrained: frozenset[int] = frozenset()
