"""Descriptions of a tool's arguments: JSON schemas, and words as SEARL's listing 1 has them."""

from __future__ import annotations

import time
from typing import Any

import pytest

from toolwright.reading.tool_arguments import (
    LONGEST_WORDS,
    function_of,
    in_words,
    object_schema,
    schemas,
    signature,
)

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("words", "types"),
    [
        ("a, b (int)", "integer integer"),
        ("a,b (float)", "number number"),
        ("a (int), b (str)", "integer string"),
        ("a: int, b: str", "integer string"),
        ("a: the first int, b: List[int] of values", "any array"),
        ("a (the first), b (int)", "any integer"),
        ("b: dict; a: bool", "boolean object"),
        ("a (int): how many, at least 1\nb (Dict[str, int])", "integer object"),
        ("a and b", "any any"),
        ("a: number of items, b: int or None", "any any"),
        ("(a, b)", "any any"),
        ("two numbers", "any any"),
        ("a b c d (int)", "integer integer"),
        ("int (a), str (b)", "any any"),
        ("ab (int), a (str), b (float)", "string number"),
    ],
)
def test_words_say_types(words: str, types: str) -> None:
    found = schemas(words, ["a", "b"])
    assert " ".join(found[name].get("type", "any") for name in "ab") == types
    assert in_words(words) == words


def test_a_type_that_the_first_inputs_contradict_is_left_out() -> None:
    assert schemas("a, b (int)", ["a", "b"], {"a": 2.5, "b": 2.0}) == {
        "a": {},
        "b": {"type": "integer"},
    }
    assert schemas("a (int), b (bool)", ["a", "b"], {"a": True, "b": 1}) == {"a": {}, "b": {}}
    assert schemas("a (list), b (str)", ["a", "b"], {"a": [1], "b": None}) == {
        "a": {"type": "array"},
        "b": {},
    }


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ({"n": {"type": "integer"}}, ["n"]),
        ('{"n": {"type": "integer"}}', ["n"]),
        ({"type": "object", "properties": {"n": {}, "m": {}}}, ["n", "m"]),
        ({"type": {"type": "string"}}, ["type"]),
        ({"properties": {"type": "object"}}, ["properties"]),
        ("", []),
        ("{", None),
        (7, None),
        (["n"], None),
    ],
)
def test_schemas_are_no_words(arguments: Any, names: list[str] | None) -> None:
    assert in_words(arguments) is None
    schema = object_schema(arguments)
    assert (None if schema is None else list(schema["properties"])) == names


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("def f(a, b=1, *, c, d=2): pass", (("a", "b", "c", "d"), ("a", "c"))),
        ("def f(): pass", ((), ())),
        ("def f(a): pass\ndef f(b): pass", (("b",), ("b",))),
        ("def f(a, /): pass", None),
        ("def f(*a): pass", None),
        ("def f(**a): pass", None),
        ("async def f(a): pass", None),
        ("def g(a): pass", None),
        ("def f(a", None),
        ("f = lambda a: a", None),
        ("(" * 10_000, None),
    ],
)
def test_a_functions_arguments(code: str, expected: Any) -> None:
    function = function_of(code, "f")
    found = None if function is None else signature(function)
    assert (None if found is None else (found.names, found.required)) == expected


@pytest.mark.parametrize("piece", ["a (int), ", "((((", "a:" * 5, "int ", "[", "\n", "é"])
def test_long_words_are_read_in_linear_time(piece: str) -> None:
    began = time.perf_counter()
    schemas(piece * 100_000, [f"a{number}" for number in range(64)])
    in_words(piece * 100_000)
    assert time.perf_counter() - began < 1.0
    assert schemas("x" * LONGEST_WORDS + " a (int)", ["a"]) == {"a": {}}
