"""Verdicts from runs of tools: whether a tool's first call works again, and whether two tools
behave alike. Pure, but for the runner. A verdict is kept for as long as the object lives."""

from __future__ import annotations

import math
from typing import Any

from memory.checks.runner import Run, Runner
from memory.types import Tool

INPUTS = 3
"""Recorded inputs of a tool that another tool is run on."""
CLOSE = 1e-9
"""Relative tolerance within which two numbers are equal."""


def works_again(tool: Tool, runner: Runner) -> str:
    """ "" where the first call works again, or none is recorded; else a sentence."""
    if not tool.inputs:
        return ""
    (outcome,) = runner.run([Run(tool=tool, inputs=tool.inputs[0])])
    return f"its first call does not work again: {outcome.error}"[:500] if outcome.error else ""


class Verdicts:
    """Answers `alike`, each pair once."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._known: dict[tuple[tuple[str, ...], ...], bool] = {}

    def alike(self, one: Tool, other: Tool) -> bool:
        """Whether both give the same results on each other's recorded inputs. False if neither has
        a recorded input. Raises ChecksDown."""
        key = (_key(one), _key(other))
        if key not in self._known:
            self._known[key] = self._tried(one, other)
        return self._known[key]

    def _tried(self, one: Tool, other: Tool) -> bool:
        if one.code == other.code and one.name == other.name:
            return True
        inputs = list(dict.fromkeys((*one.inputs[:INPUTS], *other.inputs[:INPUTS])))
        if not inputs:
            return False
        runs = [Run(tool=tool, inputs=text) for text in inputs for tool in (one, other)]
        outcomes = self._runner.run(runs)
        return all(
            not first.error and not second.error and equal(first.result, second.result)
            for first, second in zip(outcomes[::2], outcomes[1::2], strict=True)
        )


def equal(one: Any, other: Any) -> bool:
    """Whether two JSON values are the same; numbers may differ in their last digits."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        try:
            return math.isclose(one, other, rel_tol=CLOSE, abs_tol=CLOSE)
        except OverflowError:  # integers without bound
            return one == other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(equal, one, other))
    return type(one) is type(other) and bool(one == other)


def _key(tool: Tool) -> tuple[str, ...]:
    return (tool.name, tool.code, *tool.inputs[:INPUTS])
