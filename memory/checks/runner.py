"""The interface that runs tools, `Runner`, and the outcome of a run."""

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
    """Outcome of a call. result: the JSON value of a call that worked. error: a sentence, "" if the
    call worked."""

    result: Any = None
    error: str = ""


class Runner(Protocol):
    """Runs tools in a sandbox."""

    def run(self, runs: Sequence[Run]) -> Sequence[Outcome]:
        """One outcome for each run, in order; each run has a fresh process. Raises ChecksDown if
        the outcome of a run cannot be learned."""
        ...

    def close(self) -> None: ...
