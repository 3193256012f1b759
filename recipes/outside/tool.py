"""The tool of own.toml, where our own loop calls it."""

from __future__ import annotations

from toolsvc import tool

from . import calculator


@tool(description=calculator.calculate.__doc__ or "")
def calculate(expression: str) -> str:
    return calculator.calculate(expression)
