"""SPECIFICATION.md: the tests that it names exist and run, its constants have the values of the
code, its invariants are the validator's, and every row says what holds it."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.quick

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "SPECIFICATION.md").read_text(encoding="utf-8")
INVARIANTS = ROOT / "bench/history/invariants"

ROW = re.compile(r"^\| (?P<number>[A-Z]\d+) \| (?P<promise>[^|]+) \| (?P<held>[^|]+) \|$", re.M)
TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
CONSTANT = re.compile(r"`([\w/]+\.py):([\w.]+) = ([^`]+)`")
INVARIANT = re.compile(r"invariant `(\w+)`")
NO_TEST = "No test"
NOT_RUN = ("only_in_full", "skip", "xfail")
"""Marks of tests that `make test-all` does not run, or does not believe."""

OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
}


@cache
def tree(path: str) -> ast.Module:
    return ast.parse((ROOT / path).read_text(encoding="utf-8"))


def assigned(body: list[ast.stmt], name: str) -> ast.expr:
    """The value that a module's or a class's body gives to a name. LookupError if it gives none."""
    for node in body:
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == name and node.value:
            return node.value
        if isinstance(node, ast.Assign):
            target = node.targets[0]
            if ast.unparse(target) == name:
                return node.value
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                for one, value in zip(target.elts, node.value.elts, strict=True):
                    if ast.unparse(one) == name:
                        return value
    raise LookupError(name)


def value_of(node: ast.expr, module: ast.Module) -> Any:
    """An arithmetic expression's value, without an import of its module (which may need torch)."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.BinOp(left=left, op=op, right=right):
            return OPERATORS[type(op)](value_of(left, module), value_of(right, module))
        case ast.Name(id=name):
            return value_of(assigned(module.body, name), module)
        case ast.Call(func=ast.Name(id="Field"), keywords=keywords):
            (default,) = (one.value for one in keywords if one.arg == "default")
            return value_of(default, module)
    raise ValueError(f"{ast.unparse(node)} is no arithmetic")


def constant(path: str, name: str) -> Any:
    """The value of NAME or CLASS.FIELD in a file. LookupError if the file has none."""
    module = tree(path)
    owner, _, field = name.rpartition(".")
    if not owner:
        return value_of(assigned(module.body, name), module)
    for node in module.body:
        if isinstance(node, ast.ClassDef) and node.name == owner:
            return value_of(assigned(node.body, field), module)
    raise LookupError(name)


def fault_of_test(path: str, name: str) -> str:
    """Why a test does not hold anything; empty if nothing speaks against it."""
    if not (ROOT / path).is_file():
        return "no such file"
    module = tree(path)
    for node in module.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            marks = [ast.unparse(one) for one in node.decorator_list]
            marks += [
                ast.unparse(one.value)
                for one in module.body
                if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == "pytestmark"
            ]
            found = [m for m in NOT_RUN if re.search(rf"\bmark\.{m}\b", " ".join(marks))]
            return f"is marked {found[0]}" if found else ""
    return "no such function"


def fault_of_constant(path: str, name: str, said: str) -> str:
    try:
        found = constant(path, name)
    except (OSError, LookupError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    expected = value_of(ast.parse(said, mode="eval").body, tree(path))
    return "" if found == expected else f"is {found!r} in the code"


def invariants() -> Iterator[str]:
    """Names in `Invariant(name=...)` of the validator's modules."""
    for file in sorted(INVARIANTS.glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "Invariant":
                yield from (ast.literal_eval(k.value) for k in node.keywords if k.arg == "name")


def test_every_row_has_a_number_of_its_own_and_says_what_holds_it() -> None:
    rows = list(ROW.finditer(PAGE))
    numbers = [row["number"] for row in rows]
    assert len(numbers) == len(set(numbers)) >= 80
    assert len(rows) == len(re.findall(r"^\| [A-Z]\d+ ", PAGE, re.M)), "a row is malformed"
    for row in rows:
        held = row["held"]
        assert TEST.search(held) or INVARIANT.search(held) or NO_TEST in held, row["number"]
    assert PAGE.count("`tests/") == len(TEST.findall(PAGE)), "a test's id is malformed"
    assert len(CONSTANT.findall(PAGE)) >= 40


@pytest.mark.parametrize(("path", "name"), sorted(set(TEST.findall(PAGE))))
def test_a_test_that_is_named_exists_and_runs(path: str, name: str) -> None:
    assert not fault_of_test(path, name)


@pytest.mark.parametrize(("path", "name", "said"), sorted(set(CONSTANT.findall(PAGE))))
def test_a_constant_has_the_value_that_is_named(path: str, name: str, said: str) -> None:
    assert not fault_of_constant(path, name, said)


def test_an_invariant_that_is_named_is_the_validators() -> None:
    named = set(INVARIANT.findall(PAGE))
    assert len(named) > 15
    assert named <= set(invariants())


def test_what_is_wrong_is_found() -> None:
    here = "tests/unit/docs/test_specification.py"
    assert fault_of_test(here, "test_nothing") == "no such function"
    assert fault_of_test("tests/no.py", "test_nothing") == "no such file"
    full = "tests/chaos/test_outages.py", "test_a_tool_service_that_is_stopped_and_says_nothing"
    assert fault_of_test(*full) == "is marked only_in_full"
    limit = "proto/toolwright/rpc/options.py", "MESSAGE_LIMIT"
    assert fault_of_constant(*limit, "64 << 20") == ""
    assert fault_of_constant(*limit, "65 << 20") == "is 67108864 in the code"
    assert fault_of_constant(limit[0], "NOTHING", "1") == "LookupError: NOTHING"
