"""Names that are free, and code that runs under another name."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from memory.graph.guards import refusal
from memory.graph.naming import LONGEST_NAME, digest, free_name, under_name
from tests.support.tool_memory import tool
from toolsvc.tools.create import inside

RECURSIVE = """
from functools import cache

@cache
def fib(n: int, *, first=0):
    if n < 2:
        return n + first
    return fib(n - 1) + fib(n - 2)
"""
REBOUND = "def f(x):\n    return x\nf = (lambda g: lambda x: g(x) + 1)(f)\ng = f"
NO_NEWLINE = "def f(x):\n    return x  # f"


@pytest.mark.parametrize(
    ("name", "code", "inputs", "result"),
    [
        ("fib", RECURSIVE, {"n": 30}, 832040),
        ("f", REBOUND, {"x": 1}, 2),
        ("f", NO_NEWLINE, {"x": 5}, 5),
        ("f", "def f(x): return f.__name__", {"x": 5}, "f"),
    ],
)
def test_code_runs_under_another_name_as_a_session_runs_it(
    name: str, code: str, inputs: dict[str, Any], result: Any
) -> None:
    own = tool(name, code=code)
    other = under_name(own, "quad")
    assert other.name == "quad" and refusal(other, ()) == ""
    # As create_and_execute does: a definition of that name, then whatever the name means at last.
    function = inside.make(other.code, "quad")
    assert function(**inputs) == result == inside.make(code, name)(**inputs)
    assert inspect.signature(function) == inspect.signature(inside.make(code, name))
    required, accepted = inside.signature(function, "quad", list(inputs))
    assert required == [*inputs] and set(required) <= set(accepted)


def test_a_name_that_the_code_has_is_no_name_for_it() -> None:
    own = tool("roots", code="def quad(x): return x\ndef roots(x): return quad(x)")
    with pytest.raises(ValueError, match="has the word quad"):
        under_name(own, "quad")


def test_a_free_name_tells_of_the_content() -> None:
    own, other = tool("f", "one"), tool("f", "other")
    assert free_name(own, ()) == "f"
    first = free_name(own, {"f"})
    assert first == f"f_{digest(own)[:6]}" != free_name(other, {"f"})
    assert free_name(own, {"f", first}) == f"f_{digest(own)[:7]}"


def test_a_long_name_stays_a_name() -> None:
    own = tool("f" * LONGEST_NAME)
    assert len(free_name(own, {own.name})) == LONGEST_NAME
