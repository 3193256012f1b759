"""No test sleeps without saying what for: `tests/support/waiting.py` has the words for it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
MODULES = {"asyncio", "time"}


def bare_sleeps(body: ast.AST) -> Iterator[int]:
    """Lines of a test that only sleep. A loop that asks again may sleep between two questions, and
    what a test defines within itself is part of what is tested; zero seconds are a turn of the
    loop, not a time."""
    for node in ast.iter_child_nodes(body):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() | ast.Lambda():
                continue
            case ast.While() | ast.For() | ast.AsyncFor():
                continue
            case ast.Expr(value=ast.Await(value=call)) | ast.Expr(value=call):
                if _sleeps(call):
                    yield node.lineno
        yield from bare_sleeps(node)


def _sleeps(call: ast.AST) -> bool:
    match call:
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id=module), attr="sleep"), args=[duration, *_]
        ):
            zero = isinstance(duration, ast.Constant) and duration.value == 0
            return module in MODULES and not zero
    return False


def sleeping_tests(text: str) -> list[str]:
    if "sleep(" not in text:
        return []
    return [
        f"{line}, {node.name}"
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        for line in bare_sleeps(node)
    ]


def test_no_test_sleeps_without_a_reason() -> None:
    found = [
        f"{file.relative_to(TESTS)}:{line}"
        for file in sorted(TESTS.rglob("test_*.py"))
        for line in sleeping_tests(file.read_text(encoding="utf-8"))
    ]
    assert found == [], "use until, holds_for, passes or blocks of tests/support/waiting.py"


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        ("await asyncio.sleep(0.1)", ["2, test_it"]),
        ("time.sleep(later)", ["2, test_it"]),
        ("async with a:\n  if b:\n   await asyncio.sleep(1)", ["4, test_it"]),
        ("await asyncio.sleep(0)", []),
        ("while not a:\n  await asyncio.sleep(0.01)", []),
        ("async def slow():\n  await asyncio.sleep(1)", []),
        ("work = asyncio.create_task(asyncio.sleep(1))", []),
        ("await passes(1, 'it is away')", []),
    ],
)
def test_a_bare_sleep_is_found(body: str, lines: list[str]) -> None:
    assert sleeping_tests(f"async def test_it():\n {body}\n") == lines
