"""Who runs tools: `Runner`, and what came of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from memory.types import Tool


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A call of a tool. inputs: JSON object, the arguments by name."""

    tool: Tool
    inputs: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a call gave. result: of a call that worked, as JSON has it. error: a sentence, "" where
    it worked."""

    result: Any = None
    error: str = ""


class Runner(Protocol):
    """Runs tools where they can harm nobody."""

    def run(self, runs: Sequence[Run]) -> Sequence[Outcome]:
        """One outcome a run, in their order; each in a fresh process. ChecksDown where it cannot
        be known what a run gives."""
        ...

    def close(self) -> None: ...
