"""Checks that policy and tools allow the branching that a recipe sets. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from engine.errors import StartupError
from engine.types import ToolSpec, without_fork
from toolwright.recipe import Branching


def check_top_k(table: Branching | None, vocab_size: int) -> None:
    """Raises StartupError if the recipe sets more log-probs than the vocabulary has tokens. Such a
    request would crash a sampler."""
    if table is not None and table.top_k > vocab_size:
        raise StartupError(
            f"task.branching.top_k = {table.top_k}, but the policy's vocabulary has {vocab_size} "
            "tokens: lower it"
        )


def branching_warnings(table: Branching | None, tools: Iterable[ToolSpec]) -> list[str]:
    """One sentence if no trajectory can branch, because a tool of each cannot be forked."""
    fixed = without_fork(tools) if table is not None else []
    if not fixed:
        return []
    return [
        f"task.branching: no trajectory branches, for {', '.join(fixed)} cannot be forked; all of "
        "a group begin at the prompt. Give the tool a `fork` (docs/tools/your-own.md), or leave it "
        "or [task.branching] out"
    ]
