"""SPECIFICATION.md: the tests that it names exist and run, its constants have the values of the
code, its invariants are the validator's, and every row says what holds it."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from bench.history.invariants import INVARIANTS

pytestmark = pytest.mark.quick

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "SPECIFICATION.md").read_text(encoding="utf-8")

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
        case ast.Call(func=ast.Name(id="Backoff")):
            return ast.unparse(node)
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


def test_every_test_that_is_named_exists_and_runs() -> None:
    named = {"::".join(one): fault_of_test(*one) for one in TEST.findall(PAGE)}
    assert {name: fault for name, fault in named.items() if fault} == {}


def test_every_constant_has_the_value_that_is_named() -> None:
    named = {" ".join(one): fault_of_constant(*one) for one in CONSTANT.findall(PAGE)}
    assert {name: fault for name, fault in named.items() if fault} == {}


def test_the_page_names_every_invariant_of_the_validator_and_no_other() -> None:
    assert set(INVARIANT.findall(PAGE)) == {one.name for one in INVARIANTS}


def test_what_is_wrong_is_found(tmp_path: Path) -> None:
    file = tmp_path / "test_it.py"
    file.write_text(
        "pytestmark = pytest.mark.slow\n"
        "def test_one(): pass\n"
        "@pytest.mark.only_in_full\n"
        "def test_two(): pass\n",
        encoding="utf-8",
    )
    assert fault_of_test(str(file), "test_one") == ""
    assert fault_of_test(str(file), "test_two") == "is marked only_in_full"
    assert fault_of_test(str(file), "test_three") == "no such function"
    assert fault_of_test(str(tmp_path / "no.py"), "test_one") == "no such file"
    limit = "proto/toolwright/rpc/options.py", "MESSAGE_LIMIT"
    assert fault_of_constant(*limit, "64 << 20") == ""
    assert fault_of_constant(*limit, "65 << 20") == "is 67108864 in the code"
    assert fault_of_constant(limit[0], "NOTHING", "1") == "LookupError: NOTHING"
