"""The tool, as our own loop and the agent call it."""

from __future__ import annotations

import operator
import re

OPERATORS = {"*": operator.mul, "+": operator.add, "-": operator.sub, "//": operator.floordiv}
EXPRESSION = re.compile(r"\s*(\d{1,9})\s*(//|[*+-])\s*(\d{1,9})\s*")


def calculate(expression: str) -> str:
    """Works out one operation."""
    found = EXPRESSION.fullmatch(expression)
    if found is None or (found[2] == "//" and not int(found[3])):
        return "error"
    return str(OPERATORS[found[2]](int(found[1]), int(found[3])))
