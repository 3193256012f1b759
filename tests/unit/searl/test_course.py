"""Which tools meet the registration format: names, code and what is said of arguments agree."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.recipes import Part

pytestmark = pytest.mark.quick

TWO = "def f(a, b=1):\n    return a + b"


@pytest.mark.parametrize(
    ("arguments", "code", "meets"),
    [
        ("a, b (int)", TWO, True),
        ("two numbers", TWO, True),
        ("a", "def f(*a):\n    return a", False),
        ("a", "def g(a):\n    return a", False),
        ("a", "def f(a:", False),
        ("{a}", TWO, False),
        ("", "def f():\n    return 1", True),
        ("", TWO, False),
        ({"a": {}}, TWO, True),
        ({"a": {}, "b": {}}, TWO, True),
        ({"b": {}}, TWO, False),
        ({"a": {}, "c": {}}, TWO, False),
        ('{"type": "object", "properties": {"a": {}}}', TWO, True),
        (["a"], TWO, False),
        (None, TWO, False),
    ],
)
def test_arguments_and_signature(part: Part, arguments: Any, code: str, meets: bool) -> None:
    asked = {"name": "f", "arguments": arguments, "code": code}
    assert part("course.meets_format")(asked) is meets
