"""Choices of the command line. Nothing heavy is imported here, so that --help stays fast."""

from __future__ import annotations

from enum import StrEnum


class Dedupe(StrEnum):
    """What makes two trajectories duplicates."""

    ACTIONS = "actions"
    """The same actions, letter for letter, after the same prompt."""
    CALLS = "calls"
    """The same calls in the same order for the same question."""


class ExportLayout(StrEnum):
    """Chat messages as other trainers read them."""

    JSONL = "jsonl"
    """Messages as the engine writes them; tools where the prompt shows them."""
    OPENAI = "openai"
    """Calls as `tool_calls`, the tools in every row."""
    HERMES = "hermes"
    """Calls and results as tagged text, the tools in a system message and in the row."""

    @property
    def suffix(self) -> str:
        """Ending of the layout's file names."""
        return ".jsonl" if self is ExportLayout.JSONL else f".{self}.jsonl"


class TraceLayout(StrEnum):
    """Formats of a trace file."""

    JAEGER = "jaeger"
    """{"data": [...]}, which Jaeger's page uploads."""
    OTLP = "otlp"
    """{"resourceSpans": [...]}, for programs that read OpenTelemetry's JSON."""


class SamplerApi(StrEnum):
    """APIs of samplers."""

    SGLANG = "sglang"
    COMPLETIONS = "openai-completions"
    CHAT = "openai-chat"
